"""One run that is killed again and again and goes on each time; a program, run by test_kill.py.

    python lives.py FOLDER METHOD SEED…

Every life is a process of its own, forked here so that torch is imported once. Most are killed
from outside when they have said a random number of lines; some kill themselves at the worst
moments: half of a log line written, a checkpoint written but not yet in place, or just in place.
"""

import os
import random
import signal
import sys
from pathlib import Path

import torch

import dasp
from dasp.models import Toy
from dasp.streams.synthetic import CLEAN, SyntheticWorld

BATCHES, EVERY = 130, 7
GRACE = 8  # batches that a life may yet run while the kill is on its way
METHODS = {
    "tsa": {"lr": 1e-2, "rebalance": 0.5},  # it draws at random, too
    "triage": {"lr": 1e-2},  # it remembers samples
}
SPOILT, MISSING, RESET = {5, 22, 41}, {9, 30}, 25  # what the stream has beside good batches


def stream():
    domains = [(CLEAN, "audio", "video")[place % 3] for place in range(BATCHES)]
    for place, batch in enumerate(SyntheticWorld().stream(domains, 1, 8, 4.0)):
        inputs = dict(batch.inputs)
        if place in SPOILT:
            inputs["video"] = inputs["video"] * torch.nan
        if place in MISSING:
            del inputs["audio"]
        yield place, inputs


def live(folder, say):
    """Run the stream from where the checkpoint stands; say each prediction as one line."""
    method = sys.argv[2]
    tta = dasp.adapt(
        Toy(embed_dim=8, num_classes=3, seed=1),
        method,
        **METHODS[method],
        seed=3,
        log=folder / "events.jsonl",
        checkpoint=folder / "state.safetensors",
        checkpoint_every=EVERY,
    )
    if method == "triage":
        tta.fit([SyntheticWorld().draw(64, seed=1).inputs])
    done = tta.resume()
    for place, inputs in stream():
        if place < done:
            continue
        if place == RESET:
            tta.reset()
        outcome = tta(inputs)
        say(f"{place} {outcome.logits.numpy().tobytes().hex()}\n")
    tta.save(folder / "end.safetensors")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_inside(moment, count):
    """Arrange to be killed at the `count`-th such moment."""
    seen = 0
    write, replace = os.write, Path.replace

    def half_a_line(handle, data):
        nonlocal seen
        seen += data.startswith(b'{"event"')
        if seen < count:
            return write(handle, data)
        write(handle, data[: len(data) // 2])
        return die()

    def around_a_rename(path, target):
        nonlocal seen
        seen += 1
        if seen == count and moment == "before":
            die()
        replace(path, target)
        if seen == count and moment == "after":
            die()

    if moment == "line":
        os.write = half_a_line
    else:
        Path.replace = around_a_rename


def fork(folder, moment, count):
    """Start a life; return its process and the pipe that it speaks into."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        send, lines = os.write, iter(range(count + GRACE, -BATCHES, -1))

        def say(line):
            send(writer, line.encode())
            if moment == "outside" and next(lines) == 1:
                signal.pause()  # for the kill, however slow the parent

        if moment in ("line", "before", "after"):
            die_inside(moment, count)
        live(folder, say)
        os._exit(0)
    os.close(writer)
    return process, os.fdopen(reader, "r")


def lives(folder, seed):
    """Let it live until it comes to its end; return what was said, by place, and the deaths."""
    draw = random.Random(seed)
    plan = ["outside", "line", "before", "outside", "after", "line", "outside"]
    said, deaths = {}, 0
    while True:
        moment = plan[deaths] if deaths < len(plan) else "end"
        count = draw.randint(1, 2) if moment in ("before", "after") else draw.randint(3, 14)
        process, pipe = fork(folder, moment, count)
        with pipe:
            for heard, line in enumerate(pipe, start=1):
                if not line.endswith("\n"):
                    continue
                place, logits = line.split()
                assert said.setdefault(place, logits) == logits, f"batch {place} differs"
                if moment == "outside" and heard == count:
                    os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            return said, deaths
        deaths += 1


def compare(killed, whole):
    from safetensors.torch import load_file

    one, other = (load_file(path / "end.safetensors") for path in (killed, whole))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one), "the states differ"
    runs = [dasp.events.read(path / "events.jsonl") for path in (killed, whole)]
    told = [[e | {"time": 0} for e in run if e["event"] in ("batch", "reset")] for run in runs]
    assert told[0] == told[1], "the logs differ"
    assert [e["batch"] for e in told[0] if e["event"] == "batch"] == list(range(BATCHES))
    left = sorted(path.name for path in killed.iterdir())
    assert left == ["end.safetensors", "events.jsonl", "state.safetensors"], left


def main():
    folder, seeds = Path(sys.argv[1]), [int(seed) for seed in sys.argv[3:]]
    torch.set_num_threads(1)
    lines = []
    live(folder / "whole", lines.append)
    unbroken = dict(line.split() for line in lines)
    for seed in seeds:
        said, deaths = lives(folder / f"killed_{seed}", seed)
        # A life may die between a batch and the word of it: then no later one repeats it.
        assert all(unbroken[place] == logits for place, logits in said.items())
        assert len(said) >= BATCHES - deaths
        compare(folder / f"killed_{seed}", folder / "whole")
        print(f"{deaths} deaths, {len(said)} of {BATCHES} batches heard, the same to the bit")


if __name__ == "__main__":
    main()
