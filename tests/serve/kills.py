"""One stream through a worker that is killed again and again; a program, run by test_kills.py.

    python kills.py FOLDER SEED DEATHS

Every life is a process of its own, forked here so that torch is imported once. It sends the stream
from its beginning: batches that were answered before must get the same answer again.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

import dasp
from dasp.models import Toy
from dasp.serve import Worker, WorkerOptions, replay
from dasp.streams.synthetic import SyntheticWorld

SHIFTS = ({}, {"audio": 4.0}, {"video": 4.0})
BATCHES = [dict(SyntheticWorld().draw(4, seed, SHIFTS[seed % 3]).inputs) for seed in range(30)]


def build(**options):
    return dasp.adapt(Toy(embed_dim=8, num_classes=3, seed=1), "dasp", lr=1e-2, **options)


def live(folder, say):
    """Send the whole stream; say each answer."""
    tta = build(log=folder / "events.jsonl")
    worker = Worker(tta, folder, WorkerOptions(window=0, checkpoint_every=2, keep=None))
    for place, batch in enumerate(BATCHES):
        answer = json.loads(worker.submit(batch, f"r{place}", "same").result())
        say(json.dumps([place, answer["logits"]]) + "\n")
    worker.close()


def fork(folder):
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        code = 1
        try:
            live(folder, lambda line: os.write(writer, line.encode()))
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    return process, os.fdopen(reader)


def main():
    folder, draw, deaths = Path(sys.argv[1]), random.Random(int(sys.argv[2])), int(sys.argv[3])
    torch.set_num_threads(1)
    alone = build()
    wanted = [alone(batch).logits for batch in BATCHES]
    for number in range(deaths + 1):
        process, pipe = fork(folder)
        if number < deaths:
            time.sleep(draw.uniform(0.02, 0.4))
            os.kill(process, signal.SIGKILL)
        with pipe:
            said = [json.loads(line) for line in pipe if line.endswith("\n")]
        _, status = os.waitpid(process, 0)
        for place, logits in said:
            assert torch.equal(torch.tensor(logits), wanted[place]), f"batch {place} differs"
    assert os.WIFEXITED(status)
    assert (os.WEXITSTATUS(status), len(said)) == (0, len(BATCHES))
    report = replay(build(), folder)
    assert not report.differing, report
    print(f"killed {deaths} times; {report}")


if __name__ == "__main__":
    main()
