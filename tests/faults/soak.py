"""A soak: thousands of batches among faults of every kind, beside a twin that saw the good ones.

    python tests/faults/soak.py [BATCHES] [SEED]        # make soak: 20,000 batches, ten minutes

One adaptation of our own method with rebalancing, an event log and a checkpoint is given good
batches among bad inputs, models that raise, interrupts at any moment, calls from signal handlers,
a disk that is full from time to time and a feature store that is removed. Afterwards its state,
its predictions and its counters must equal those of a twin that was given the good batches alone,
its memory must not have grown, and every scrape must parse.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import torch
from prometheus_client.parser import text_string_to_metric_families
from rich.progress import track

import dasp
from dasp.bench.store import Store
from dasp.core.errors import DaspError, StateError
from dasp.models import Toy
from dasp.streams.synthetic import CLEAN, SyntheticWorld

WORLD = SyntheticWorld(classes=3)
POOL, SIZE = 48, 8
SETTLED = 2_000  # batches after which memory must not grow
GROWTH_MIB = 24


class Fragile(Toy):
    """A toy that raises when it is told to, in either of its halves."""

    fails = ""

    def encode(self, inputs):
        if self.fails == "encode":
            raise RuntimeError("the encoder gave up")
        return super().encode(inputs)

    def fuse(self, tokens):
        if self.fails == "fuse":
            raise RuntimeError("the fusion gave up")
        return super().fuse(tokens)


def build(**files):
    model = Fragile(embed_dim=8, num_classes=3, seed=1)
    tta = dasp.adapt(model, "triage", lr=1e-3, rebalance=0.5, checkpoint_every=25, **files)
    tta.fit([WORLD.draw(64, seed=1).inputs])
    return tta


class Pool:
    """Good batches by number, read from a feature store that may vanish at any time."""

    def __init__(self, folder):
        names = [(CLEAN, "audio", "video")[i % 3] for i in range(POOL)]
        self.made = [batch.inputs for batch in WORLD.stream(names, 1, SIZE, 4.0)]
        self.store = Store(folder)

    def get(self, number):
        number %= POOL
        return {
            name: self.stored({"kind": "soak", "name": name, "number": number}, value)
            for name, value in self.made[number].items()
        }

    def stored(self, key, value):
        found = self.store.get(key, SIZE, lambda: iter([value.numpy()]))
        return torch.from_numpy(np.array(found))


@contextmanager
def small_disk():
    """Give a folder on a disk of 16 MiB where that may be mounted, else an ordinary one."""
    folder = Path(tempfile.mkdtemp(prefix="dasp_soak_"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield folder, mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def give_bad(tta, batch, draw):
    """Give a batch that must be refused."""
    name = draw.choice(["audio", "video"])
    value = batch[name]
    nan = value.clone().index_fill_(0, torch.tensor([0]), torch.nan)
    odd = [nan, value * torch.inf, value[:, :, :3], value[:-1], value.double(), None]
    kinds = [*({**batch, name: own} for own in odd), {}, {**batch, "smell": value}, 7]
    with suppress(DaspError):
        assert tta(draw.choice(kinds)).rejected


def give_failing(tta, batch, draw):
    tta.model.fails = draw.choice(["encode", "fuse"])
    try:
        tta(batch)
    except (RuntimeError, DaspError) as error:
        if "gave up" not in str(error):
            raise
    else:
        raise AssertionError("the model's error was lost")
    finally:
        tta.model.fails = ""


@contextmanager
def alarm(handler, seconds):
    """Call a handler by a signal, after so many seconds."""
    previous = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def give_interrupted(tta, batch, draw):
    """Interrupt a call after a random time; tell whether the batch was learnt all the same."""
    before = tta.memory.batch_index

    def interrupt(*_):
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), alarm(interrupt, draw.uniform(1e-5, 1.2e-2)):
        tta(batch)
    return tta.memory.batch_index > before


def give_signalled(tta, batch, draw, folder):
    """Call a method from a signal handler, perhaps in the middle of a step.

    Return the outcome of the batch, and whether the handler reset the state: before or after the
    step it may, within it must be refused.
    """
    what, done = draw.choice(["state", "save", "metrics", "reset"]), []

    def handler(*_):
        with suppress(StateError, OSError):
            getattr(tta, what)(*([folder / "asked.safetensors"] if what == "save" else []))
            done.append(what)

    with alarm(handler, draw.uniform(1e-5, 6e-3)):
        outcome = tta(batch)
    return outcome, done == ["reset"]


def fill(folder):
    """Fill the disk to the last block."""
    with (folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def rss_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def same(tta, twin):
    one, other = tta.state(), twin.state()
    torch.testing.assert_close(one["tensors"], other["tensors"], rtol=0, atol=0, equal_nan=True)
    return one["batch_index"] == other["batch_index"]


def give(fault, tta, twin, batch, draw, folder):
    """Give a batch in one of the ways, and to the twin what should be learnt; count what was."""
    if fault == "bad":
        give_bad(tta, batch, draw)
    elif fault == "fails":
        give_failing(tta, batch, draw)
    elif fault == "interrupt":
        if give_interrupted(tta, batch, draw):
            twin(batch)
            return "interrupted, learnt"
    elif fault == "frozen":
        with tta.frozen():
            tta(batch)
    else:
        signalled = fault == "signal"
        given = give_signalled(tta, batch, draw, folder) if signalled else (tta(batch), False)
        outcome, reset = given
        if reset and tta.memory.batch_index:  # before the step, which is the only one since
            twin.reset()
        assert torch.equal(outcome.logits, twin(batch).logits), "the predictions differ"
        if reset and not tta.memory.batch_index:
            twin.reset()
    return fault


def soak(batches, seed):
    draw, told, begun = random.Random(seed), Counter(), time.monotonic()
    with small_disk() as (folder, mounted), tempfile.TemporaryDirectory() as store:
        files = {"log": folder / "events.jsonl", "checkpoint": folder / "state.safetensors"}
        tta, twin, pool, start = build(**files), build(), Pool(Path(store) / "store"), 0.0
        faults = ["good"] * 9 + ["bad", "fails", "interrupt", "signal", "frozen", "store"]
        for number in track(range(batches), "soaking", disable=not sys.stderr.isatty()):
            if mounted and number % 1_000 == 400:
                fill(folder)
            if mounted and number % 1_000 == 600:
                (folder / "filler").unlink()
            fault = draw.choice(faults)
            if fault == "store":
                shutil.rmtree(pool.store.folder, ignore_errors=True)
            told[give(fault, tta, twin, pool.get(number), draw, folder)] += 1
            if number % 100 == 0:
                assert same(tta, twin), f"the states differ at batch {number}"
                assert list(text_string_to_metric_families(tta.metrics())), "nothing to scrape"
            if number == min(SETTLED, batches // 2):
                start = rss_mib()
        grown = rss_mib() - start
        assert same(tta, twin), "the states differ at the end"
        assert grown < GROWTH_MIB, f"memory grew by {grown:.0f} MiB"
        told["write errors"] = tta.counters["write_errors"]
        disk = "a full disk" if mounted else "no full disk (mount is not permitted)"
        print(
            f"{batches} batches in {time.monotonic() - begun:.0f} s, {disk}: the state equals the "
            f"twin's, memory grew by {grown:.1f} MiB; {dict(told)}"
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    arguments = [int(word) for word in sys.argv[1:]]
    soak(*(arguments + [20_000, 0][len(arguments) :]))
