"""Take batches from a Kafka topic, send them to `dasp serve`, produce the answers to another.

    python examples/serving/kafka_gateway.py http://127.0.0.1:8720 BOOTSTRAP_SERVERS

Sensors produce to the topic "batches", with their name as the key, the bytes of a safetensors file
with one tensor (B, ...) per modality (by default Kafka takes messages of up to 1 MB). The answer is
produced to the topic "answers" as JSON, with the same key. A message is committed after its answer
was delivered, so that none is lost if this process is killed; the next one reads it again, and the
server learns from it once, because its id is made of its place in the topic and of its content.
"""

import hashlib
import json
import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from safetensors.torch import load

from dasp.client import Client, ServerError


def answer(client: Client, message: Message) -> dict:
    """Return the answer to one message; what is wrong with it is an answer, too."""
    try:
        place = f"{message.topic()}-{message.partition()}-{message.offset()}"
        name = f"{place}-{hashlib.sha256(message.value()).hexdigest()[:32]}"
        out = client(load(message.value()), request_id=name)
    except ServerError:
        raise  # the server's fault: end here, and read the message again at the next start
    except Exception as error:
        return {"error": str(error)}
    biased = sorted(out.diagnosis.biased) if out.diagnosis else []
    return {"predictions": out.logits.argmax(1).tolist(), "biased": biased}


def check(error: KafkaError | None, _: object = None) -> None:
    """End at an error of the broker; nothing was committed, so the message is read again."""
    if error is not None:
        raise KafkaException(error)


def main(url: str, servers: str) -> None:
    """Answer messages in the order of each partition until Ctrl-C."""
    own = {"group.id": "dasp-gateway", "enable.auto.commit": False, "session.timeout.ms": 6000}
    consumer = Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest", **own})
    consumer.subscribe(["batches"])
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    with Client(url) as client:
        while True:
            if (message := consumer.poll(1.0)) is None:
                continue
            check(message.error())
            said = json.dumps(answer(client, message))
            producer.produce("answers", said, message.key(), on_delivery=check)
            producer.flush()
            consumer.commit(message, asynchronous=False)


if __name__ == "__main__":
    main(*sys.argv[1:3])
