"""Streams on a real local Ray Serve: two shards, one of which is killed."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

import dasp
from dasp.client import Client
from dasp.core.errors import InputError
from dasp.models import Toy
from dasp.serve import WorkerOptions, replay
from dasp.serve.ray import many_streams
from dasp.streams.synthetic import SyntheticWorld

TOKEN = "a token for the tests"
KEYS = ("device-1", "device-2", "device-3", "device-4")  # three for one shard, one for the other
BATCHES = 12


def build(folder: Path):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pid").write_text(str(os.getpid()))
    model = Toy(embed_dim=8, num_classes=3, seed=1)
    return dasp.adapt(model, "dasp", lr=1e-2, log=folder / "events.jsonl")


def stream(number):
    """Return the batches of one device: clean and shifted ones in turn."""
    world, shifts = SyntheticWorld(), ({}, {"audio": 4.0}, {"video": 4.0})
    seeds = range(100 * number, 100 * number + BATCHES)
    return [dict(world.draw(4, seed, shifts[seed % 3]).inputs) for seed in seeds]


def start(ray, attempts=3):
    """Start Ray here; a node has 30 seconds for it, which a busy machine may exceed."""
    for left in reversed(range(attempts)):
        try:
            ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
            return
        except Exception:
            ray.shutdown()
            if not left:
                raise


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    # A busy machine is no reason to fail: its proxy may take its time.
    os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "300"
    os.environ["RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S"] = "300"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # it would go over the network
    import ray
    from ray import serve

    folder = tmp_path_factory.mktemp("streams")
    start(ray)
    try:
        options = WorkerOptions(window=0, checkpoint_every=5)
        app = many_streams(build, folder, token=TOKEN, options=options, resources={"num_cpus": 0.5})
        serve.start(http_options={"host": "127.0.0.1", "port": 18720})
        serve.run(app)
        yield "http://127.0.0.1:18720/streams", folder
    finally:
        serve.shutdown()
        ray.shutdown()


def pids(folder):
    """The process of each stream."""
    return [int((folder / key / "pid").read_text()) for key in KEYS]


@pytest.mark.filterwarnings("ignore")
def test_no_request_is_lost_and_each_stream_continues_when_a_shard_is_killed(url):
    address, folder = url
    said, faults, ready = {key: [] for key in KEYS}, [], threading.Event()

    def send(key):
        with Client(f"{address}/{key}", TOKEN, timeout=600) as client:
            for place, batch in enumerate(stream(KEYS.index(key))):
                if place == 4:
                    ready.wait(600)
                try:
                    said[key].append(client(batch).logits)
                except Exception as error:
                    faults.append(error)

    senders = [threading.Thread(target=send, args=(key,)) for key in KEYS]
    for one in senders:
        one.start()
    while min(map(len, said.values())) < 4 and not faults:
        time.sleep(0.05)
    before = pids(folder)
    assert len(set(before)) == 2
    ready.set()
    os.kill(before[0], signal.SIGKILL)
    for one in senders:
        one.join(600)
    assert faults == []
    moved = [one != other for one, other in zip(before, pids(folder), strict=True)]
    assert moved == [pid == before[0] for pid in before]
    for number, key in enumerate(KEYS):
        assert replay(build(folder / "again" / key), folder / key).differing == ()
        alone = build(folder / "alone" / key)
        ours = [alone(batch).logits for batch in stream(number)]
        same = [torch.equal(one, other) for one, other in zip(ours, said[key], strict=True)]
        assert same == [True] * BATCHES, key
    with Client(f"{address}/{KEYS[0]}", TOKEN, timeout=60) as client:
        assert client.history()[-1]["batches"] >= 5
        with pytest.raises(InputError, match="unknown modality"):
            client({"radar": torch.zeros(1, 2)})
    with Client(f"{address}/..%2f", TOKEN, timeout=60) as client, pytest.raises(dasp.DaspError):
        client.info()
