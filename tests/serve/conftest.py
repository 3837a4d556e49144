"""A small model behind a worker or a real server, and batches for it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
import uvicorn

import dasp
from dasp.client import Client
from dasp.models import Toy
from dasp.page.server import open_socket
from dasp.serve import Worker, WorkerOptions
from dasp.serve.app import WebOptions, build_app
from dasp.streams.synthetic import CLEAN, SyntheticWorld

TOKEN = "a token for the tests"


def adaptation(model=None, **options):
    model = model or Toy(embed_dim=8, num_classes=3, seed=1)
    return dasp.adapt(model, "dasp", lr=1e-2, **options)


@pytest.fixture(scope="session")
def stream():
    """Return batches of 4 samples: clean, then each modality shifted, and so on."""

    def batches(count):
        domains = [(CLEAN, "audio", "video")[place % 3] for place in range(count)]
        return [dict(b.inputs) for b in SyntheticWorld().stream(domains, 1, 4, 4.0)]

    return batches


@pytest.fixture
def make():
    return adaptation


@pytest.fixture
def open_worker(tmp_path):
    """Start workers on one journal, one after another; end the last."""
    opened = []

    def start(tta=None, **options):
        opened.append(Worker(tta or adaptation(), tmp_path / "journal", WorkerOptions(**options)))
        return opened[-1]

    yield start
    for worker in opened:
        worker.close(60)


@pytest.fixture
def online(open_worker):
    """Put a worker on the net, in a thread; return a client of it."""
    running = []

    def start(tta=None, web=None, timeout=120, **options):
        worker = open_worker(tta, **options)
        app = build_app(worker, TOKEN, WebOptions(**(web or {})), closes=False)
        listener = open_socket("127.0.0.1", 0)
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        running.append((server, thread, listener, Client(address, TOKEN, timeout)))
        return running[-1][-1]

    yield start
    for server, thread, listener, client in running:
        client.close()
        server.should_exit = True
        thread.join(10)
        listener.close()


class Program:
    """The command `dasp serve` as a process that can be killed and started again."""

    def __init__(self, folder, **environment):
        self.folder, self.port = folder, 0
        places = [str(Path(dasp.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        own = {"PYTHONPATH": os.pathsep.join(places), "DASP_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
        self.environment = os.environ | own | environment

    def start(self, *flags):
        words = ["serve", "--model", "mine.py:build", "--method", "dasp", "--set", "lr=1e-2"]
        words += ["--port", str(self.port), "--checkpoint-every", "7", *flags]
        self.process = self.run(words)
        said = self.process.stdout.readline()
        assert said.startswith("serving at http://"), said + self.process.stdout.read()
        self.port = int(said.split(":")[2].split(",")[0])
        return self

    def run(self, words):
        out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        words = [sys.executable, "-m", "dasp", *words]
        return subprocess.Popen(words, cwd=self.folder, env=self.environment, **out)

    def client(self, timeout=240):
        return Client(f"http://127.0.0.1:{self.port}", TOKEN, timeout)

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.communicate(timeout=240)
        return self.process.returncode


@pytest.fixture
def program(tmp_path):
    made = Program(tmp_path)
    yield made
    if made.process.poll() is None:
        made.kill()


class Gate(Toy):
    """A model that waits in `encode` as long as its gate is closed, or fails when told to."""

    def __init__(self):
        super().__init__(embed_dim=8, num_classes=3, seed=1)
        self.open = threading.Event()
        self.open.set()

    def encode(self, inputs):
        self.open.wait(120)
        if any((value[:, 0, 0] == 99).any() for value in inputs.values()):
            raise RuntimeError("99 is not a value")
        return super().encode(inputs)


@pytest.fixture
def gate():
    model = Gate()
    yield model
    model.open.set()


@pytest.fixture(scope="session")
def wait_until():
    def wait(true, seconds=120):
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end
            time.sleep(0.01)

    return wait


@pytest.fixture(scope="session")
def alike():
    return lambda one, other: torch.equal(one.nan_to_num(), other.nan_to_num())
