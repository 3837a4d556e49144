"""Take batches from an MQTT broker, send them to `dasp serve`, and publish the answers.

    python examples/serving/mqtt_gateway.py http://127.0.0.1:8720 HOST PORT

Sensors publish to sensors/DEVICE/batch, with quality of service 1, the bytes of a safetensors file
with one tensor (B, ...) per modality. The answer comes at sensors/DEVICE/answer as JSON. A message
is acknowledged after its answer is published, so that none is lost if this process is killed; the
broker then sends it again, and the server learns from it once, because its id is made of it.
"""

import hashlib
import json
import sys

import paho.mqtt.client as mqtt
from safetensors.torch import load

from dasp.client import Client, ServerError


def answer(client: Client, message: mqtt.MQTTMessage) -> dict:
    """Return the answer to one message; what is wrong with it is an answer, too."""
    name = hashlib.sha256(message.topic.encode() + message.payload).hexdigest()
    try:
        out = client(load(message.payload), request_id=name)
    except ServerError:
        raise  # the server's fault: the broker sends the message again at the next start
    except Exception as error:
        return {"error": str(error)}
    biased = sorted(out.diagnosis.biased) if out.diagnosis else []
    return {"predictions": out.logits.argmax(1).tolist(), "biased": biased}


def main(url: str, host: str, port: str) -> None:
    """Answer messages one after another until Ctrl-C."""
    client = Client(url)
    broker = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2, "dasp-gateway", clean_session=False, manual_ack=True
    )

    def on_connect(broker, *_) -> None:
        broker.subscribe("sensors/+/batch", qos=1)

    def on_subscribe(*_) -> None:
        print("subscribed", flush=True)  # from now on the broker keeps what is published

    def on_message(broker, _, message: mqtt.MQTTMessage) -> None:
        topic = message.topic.removesuffix("batch") + "answer"
        broker.publish(topic, json.dumps(answer(client, message)), qos=1)
        broker.ack(message.mid, message.qos)

    broker.on_connect, broker.on_subscribe, broker.on_message = on_connect, on_subscribe, on_message
    broker.connect(host, int(port))
    broker.loop_forever()


if __name__ == "__main__":
    main(*sys.argv[1:4])
