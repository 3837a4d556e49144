"""The gateways of examples/serving in front of a real server: a directory, and an MQTT broker."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import uvicorn
from safetensors.torch import save

import dasp
from dasp.models import Toy
from dasp.page.server import open_socket
from dasp.serve import Worker, WorkerOptions
from dasp.serve.app import build_app
from dasp.streams.synthetic import SyntheticWorld

TOKEN = "a token for the tests"
EXAMPLES = Path(__file__).parents[2] / "examples" / "serving"


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("DASP_TOKEN", TOKEN)
    tta = dasp.adapt(Toy(embed_dim=8, num_classes=3, seed=1), "dasp")
    worker = Worker(tta, tmp_path / "served", WorkerOptions(window=0))
    listener = open_socket("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(build_app(worker, TOKEN), log_level="critical"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}", worker
    server.should_exit = True
    thread.join(60)
    listener.close()


def batches(count):
    return [dict(b.inputs) for b in SyntheticWorld().stream(["audio"] * count, 1, 4, 4.0)]


def start(name, *words):
    source = str(Path(dasp.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(EXAMPLES / name), *words]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)


def expected(inputs):
    """What an adaptation of its own says to each batch."""
    alone = dasp.adapt(Toy(embed_dim=8, num_classes=3, seed=1), "dasp")
    return [alone(one).logits.argmax(1).tolist() for one in inputs]


def listens(port):
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def wait_until(true, seconds=240):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_directory_that_fills_up_is_answered_once_per_file(server, tmp_path):
    (url, worker), folder, sent = server, tmp_path / "inbox", batches(4)
    folder.mkdir()
    for number, batch in enumerate(sent[:2]):
        (folder / f"{number}.safetensors").write_bytes(save(batch))
    process = start("watch_folder.py", url, str(folder))
    wait_until(lambda: (folder / "1.json").exists())
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (folder / "1.json").unlink()  # as if it were killed before it could write the answer
    (folder / "2.safetensors").write_bytes(b"rubbish")
    (folder / "3.safetensors").write_bytes(save(sent[3]))
    process = start("watch_folder.py", url, str(folder))
    wait_until(lambda: (folder / "3.json").exists())
    process.kill()
    process.communicate()
    said = [json.loads((folder / f"{number}.json").read_text()) for number in range(4)]
    assert "error" in said[2]
    ours = [said[place]["predictions"] for place in (0, 1, 3)]
    assert ours == expected([sent[0], sent[1], sent[3]])
    assert worker.batches == 3


@pytest.mark.skipif(shutil.which("mosquitto") is None, reason="mosquitto is not installed")
def test_messages_of_a_broker_are_answered_and_none_is_lost_when_the_gateway_is_killed(
    server, tmp_path
):
    import paho.mqtt.client as mqtt

    url, worker = server
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "m.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    broker = subprocess.Popen(["mosquitto", "-c", str(tmp_path / "m.conf")])
    answers, sent = [], batches(4)
    sensor = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "sensor")
    sensor.on_message = lambda *told: answers.append((told[2].topic, json.loads(told[2].payload)))
    try:
        wait_until(lambda: listens(port))
        sensor.connect("127.0.0.1", port)
        sensor.subscribe("sensors/+/answer", qos=1)
        sensor.loop_start()
        gateway = start("mqtt_gateway.py", url, "127.0.0.1", str(port))
        assert gateway.stdout.readline() == "subscribed\n"
        wait_until(lambda: sensor.is_connected())
        for batch in sent[:2]:
            sensor.publish("sensors/left/batch", save(batch), qos=1)
        wait_until(lambda: len(answers) == 2)
        gateway.kill()
        gateway.communicate()
        sensor.publish("sensors/left/batch", save(sent[2]), qos=1)  # kept by the broker
        sensor.publish("sensors/left/batch", b"rubbish", qos=1)
        sensor.publish("sensors/left/batch", save(sent[3]), qos=1).wait_for_publish(240)
        gateway = start("mqtt_gateway.py", url, "127.0.0.1", str(port))
        wait_until(lambda: len(answers) == 5)
    finally:
        sensor.loop_stop()
        sensor.disconnect()
        for process in (gateway, broker):
            process.terminate()
            process.communicate()
    assert {topic for topic, _ in answers} == {"sensors/left/answer"}
    assert "error" in answers[3][1]
    ours = [told["predictions"] for _, told in answers if "predictions" in told]
    assert ours == expected(sent)
    assert worker.batches == 4


def test_messages_of_a_topic_are_answered_and_none_is_lost_when_the_gateway_is_killed(server):
    """The broker is the one inside librdkafka: its client's protocol, over sockets."""
    from confluent_kafka import Consumer, Producer

    (url, worker), sent = server, batches(4)
    sensor = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = sensor.list_topics(timeout=60).brokers.values()
    address = f"{broker.host}:{broker.port}"

    def publish(*messages):
        for message in messages:
            sensor.produce("batches", message, b"left")
        assert sensor.flush(60) == 0

    publish(save(sent[0]), save(sent[1]))
    group = {"group.id": "sensor", "auto.offset.reset": "earliest"}
    reader, answers = Consumer({"bootstrap.servers": address, **group}), {}
    sensor.produce("answers", b"{}", b"first")  # so that the topic exists
    sensor.flush(60)
    reader.subscribe(["answers"])

    def read():
        message = reader.poll(0.2)
        if message is not None and message.error() is None and message.key() == b"left":
            answers[message.offset()] = json.loads(message.value())
        return answers

    gateway = start("kafka_gateway.py", url, address)
    try:
        wait_until(lambda: len(read()) == 2)
        gateway.kill()
        gateway.communicate()
        publish(save(sent[2]), b"rubbish", save(sent[3]))
        gateway = start("kafka_gateway.py", url, address)
        wait_until(lambda: len(said := read()) > 4 and "predictions" in said[max(said)])
    finally:
        gateway.kill()
        gateway.communicate()
        reader.close()
    said = [answers[place] for place in sorted(answers)]
    assert any("error" in one for one in said)
    ours = [one["predictions"] for one in said if "predictions" in one]
    # The second may have been answered before it was committed, and then a second time.
    assert (ours if len(ours) == 4 else [ours[0], *ours[2:]]) == expected(sent)
    assert worker.batches == 4
