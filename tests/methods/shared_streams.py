"""Run the same streams in one process, on two ranks and on three; a program of test_distributed.py.

    python shared_streams.py FOLDER

Every process is forked here so that torch is imported once. Each writes its results, by stream, to
FOLDER/<ranks>-<rank>.pt; 1-0.pt is that of the one process, which has no group.
"""

import os
import sys
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import dasp
from dasp.methods import Tent, passes
from dasp.models import CavMae, Toy
from dasp.streams.synthetic import CLEAN, SyntheticWorld

FOLDER = Path(sys.argv[-1])  # the only word; pytest imports this file without any
SHARES = {1: (1.0,), 2: (0.3, 1.0), 3: (0.5, 0.6, 1.0)}  # where a rank's part of a batch ends
SETTINGS = {
    "released, float32": ("dasp", {"delta": 1e-6}),
    "paper, float32": ("dasp", {"variant": "paper"}),
    "released, three sensors": ("dasp", {"delta": 1e-6}),
    "triage": ("triage", {}),
    "triage, no learning": ("triage", {"learn": False}),
    "triage, three sensors": ("triage", {}),
    "triage, BatchNorm": ("triage", {}),
    "same roles": ("dasp", {"variant": "paper", "roles": "same", "steps": 2}),
    "cav_mae in pieces": ("dasp", {"variant": "paper"}),
    "few samples": ("dasp", {"variant": "paper"}),
    "few samples, cav_mae": ("dasp", {"delta": 1e-6}),
    "one sample": ("triage", {}),
    "source": ("source", {}),
    "tent": ("tent", {"predict": "after"}),
    "read": ("read", {"rebalance": 0.5}),
    "eata": ("eata", {"margin": 1.0, "similarity": 1.1}),
    "eata, fitted": ("eata", {"margin": 1.0, "similarity": 1.1}),
}
SIZES = {"few samples": 2, "few samples, cav_mae": 2, "one sample": 1}
ON_THREE = ("released, three sensors", "triage", *SIZES)


class Place:
    """Which rank this is, of how many."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size
        self.group = {"group": "world"} if size > 1 else {}

    def part(self, batch):
        ends = (0.0, *SHARES[self.size])[self.rank :][:2]
        size = len(next(iter(batch.values())))
        rows = slice(*(round(size * end) for end in ends))
        return {name: value[rows] for name, value in batch.items()}

    def adapt(self, method="dasp", model=None, lr=1e-3, **options):
        return dasp.adapt(model or Toy(seed=1), method, lr=lr, **self.group, **options)


def stream(modalities=("audio", "video"), size=17, kind=torch.float32):
    domains = [CLEAN, *modalities, CLEAN, *modalities][:5]
    batches = SyntheticWorld(modalities).stream(domains, 1, size, 4.0)
    return [{name: v.to(kind) for name, v in batch.inputs.items()} for batch in batches]


def cav_mae():
    torch.manual_seed(0)
    return CavMae(embed_dim=16, num_heads=2, depth=1, audio_length=32, image_size=32, num_classes=5)


def seen_and_heard(model, size, seed):
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(size, *shape, generator=generator, dtype=torch.float64)
        for name, shape in model.input_shapes.items()
    }


def record(outcome):
    found, fields = outcome.diagnosis, ("logits", "updated", "loss", "rejected")
    diagnosis = {"scores": found and dict(found.scores), "biased": found and sorted(found.biased)}
    return diagnosis | {name: getattr(outcome, name) for name in fields}


def adapting(name, place):
    """Run a stream of good batches; one of them lacks a modality, and one call is frozen."""
    method, options = SETTINGS[name]
    modalities = ("audio", "video", "depth") if "three" in name else ("audio", "video")
    kind = torch.float32 if "float32" in name else torch.float64
    size = SIZES.get(name, 17)
    model = cav_mae() if "cav_mae" in name else Toy(modalities=modalities, seed=1)
    if "BatchNorm" in name:
        for encoder in model.encoders.values():
            encoder.append(torch.nn.BatchNorm1d(4))
    passes.AT_ONCE = 1000 if "pieces" in name else 2**23
    tta = place.adapt(method, model.to(kind), **options)
    if name.startswith("triage") or name in ("one sample", "eata, fitted"):
        drawn = SyntheticWorld(modalities).draw(64, seed=5).inputs
        clean = {name: value.to(kind) for name, value in drawn.items()}
        tta.fit([place.part(clean), place.part({n: v.flip(0) for n, v in clean.items()})])
    batches = stream(modalities, size, kind)
    if "cav_mae" in name:
        batches = [seen_and_heard(model, size, seed) for seed in range(4)]
    calls = [record(tta(place.part(batch))) for batch in batches]
    calls.append(record(tta(place.part({"video": batches[1]["video"]}))))
    with tta.frozen():
        calls.append(record(tta(place.part(batches[2]))))
    single = tta.alone(place.part(batches[0]))
    return {"calls": calls, "alone": single, "state": tta.state()["tensors"]}


class Fragile(Toy):
    """A toy that raises where a sample holds the sign for it, or late in a step."""

    raise_late = False

    def encode(self, inputs):
        if any((value == 77.0).any() for value in inputs.values()):
            raise ValueError("a wire is loose")
        return super().encode(inputs)

    def fuse(self, tokens):
        if len(tokens) == len(self.modalities) and self.raise_late and torch.is_grad_enabled():
            raise ValueError("a late fault")
        return super().fuse(tokens)


def broken():
    raise ValueError("the latest fault")


def marked(batch, row, value):
    audio = batch["audio"].clone()
    audio[row] = value
    return {**batch, "audio": audio}


def faults(place):
    """Spoil samples of the last rank alone, in several ways, among good batches."""
    last = place.rank == place.size - 1
    model = Fragile(seed=1)
    tta = place.adapt(model=model, delta=1e-6)
    batches = stream()
    calls, states = {"good": record(tta(place.part(batches[1])))}, [tta.state()["tensors"]]
    calls["nan"] = record(tta(place.part(marked(batches[2], slice(10, 17), torch.nan))))
    calls["overflow"] = record(tta(place.part(marked(batches[2], 16, 3e38))))
    for name, batch in {
        "raises": place.part(marked(batches[2], 16, 77.0)),
        "shape": {**place.part(batches[2])} | ({"audio": torch.zeros(3)} if last else {}),
        "late": place.part(batches[2]),
        "latest": place.part(batches[2]),  # when all gradients are there
    }.items():
        model.raise_late = last and name == "late"
        descend = tta.memory.optimizer.step
        tta.memory.optimizer.step = broken if last and name == "latest" else descend
        try:
            calls[name] = record(tta(batch))
        except Exception as error:
            calls[name] = f"{type(error).__name__}: {error}"
        model.raise_late, tta.memory.optimizer.step = False, descend
        states.append(tta.state()["tensors"])
    calls["again"] = record(tta(place.part(batches[2])))
    return {"calls": calls, "states": states, "counters": tta.counters}


def out_of_step(place):
    """Do on one rank what the others do not do; only a group can tell."""
    last = place.rank == place.size - 1
    batches = [place.part(batch) for batch in stream()]
    said = {}

    def attempt(name, call):
        try:
            said[name] = call()
        except dasp.DaspError as error:
            said[name] = f"{type(error).__name__}: {error}"

    for name in dasp.METHODS:
        model = Toy(depth=1, seed=1)
        options = {"model": model, "stream_length": 4} if name == "sumi" else {"model": model}
        attempt(name, lambda name=name, options=options: bool(place.adapt(name, **options)))
    attempt("options", lambda: place.adapt(delta=0.1 if last else 0.2))
    attempt("model", lambda: place.adapt(model=Toy(seed=place.rank)))
    attempt("group", lambda: dasp.adapt(Toy(), group="wrld"))
    attempt("unknown", lambda: place.adapt("dsap" if last else "dasp"))
    tta = place.adapt(delta=1e-6)
    tta(batches[1])
    before = tta.state()
    if last:
        tta.reset()
    attempt("reset on one rank", lambda: tta(batches[2]))
    if last:
        tta.load_state(before)
    only = {"video": batches[1]["video"]}
    attempt("modalities", lambda: tta(only if last else batches[1]))
    attempt("fit", lambda: tta.fit([batches[0]]))
    attempt("own method", lambda: place.adapt(OwnTent))
    normed = Toy(seed=1)
    normed.encoders["audio"].append(torch.nn.BatchNorm1d(4))
    attempt("batch norms", lambda: place.adapt("tent", normed))
    triage = place.adapt("triage")
    attempt("fits of different length", lambda: triage.fit([batches[0]] * (1 + last)))
    attempt("afterwards", lambda: record(tta(batches[1]))["updated"])
    return {"said": said, "state": tta.state()["tensors"]}


class OwnTent(Tent):
    """A method that does not say whether it may be shared."""


def lost(place):
    """End the last rank without a word, and see what the others make of it."""
    tta = place.adapt(delta=1e-6)
    batches = [place.part(batch) for batch in stream()]
    tta(batches[1])
    before = tta.memory.capture().tensors
    if place.rank == place.size - 1:
        os._exit(0)
    try:
        said = str(tta(batches[2]))
    except dasp.DaspError as error:
        said = f"{type(error).__name__}: {error}"
    after = tta.memory.capture().tensors
    return {"said": said, "same": all(torch.equal(v, after[k]) for k, v in before.items())}


def saving(place):
    """Write a state, a log and checkpoints while sharing, and go on from them."""
    folder = FOLDER / f"saved-{place.size}"
    folder.mkdir(exist_ok=True)
    options = {"delta": 1e-6, "checkpoint": folder / "checkpoint", "checkpoint_every": 2}
    tta = place.adapt(log=folder / "log", **options)
    batches = [place.part(batch) for batch in stream()]
    for batch in batches[:2]:
        tta(batch)
    if place.rank == 0:
        tta.save(folder / "state")
    expected = [record(tta(batch)) for batch in batches[2:4]]  # all ranks meet: the file is there
    other = place.adapt(**options, lr=1e-3)
    done = other.resume()
    for batch in batches[done:4]:
        other(batch)
    loaded = place.adapt(delta=1e-6)
    loaded.load(folder / "state")
    found = [record(loaded(batch)) for batch in batches[2:4]]
    same = {
        k: torch.equal(v, other.state()["tensors"][k]) for k, v in tta.state()["tensors"].items()
    }
    events = [event["event"] for event in dasp.events.read(folder / "log")]
    return {"expected": expected, "found": found, "done": done, "same": same, "events": events}


def run(rank, size):
    torch.set_num_threads(1)
    place = Place(rank, size)
    if size > 1:
        store = dist.FileStore(str(FOLDER / f"store-{size}"), size)
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=60)
        )
    found = {name: adapting(name, place) for name in (ON_THREE if size == 3 else SETTINGS)}
    found["faults"] = faults(place)
    if size < 3:
        found["saving"] = saving(place)
    if size == 2:
        found["out of step"] = out_of_step(place)
    torch.save(found, FOLDER / f"{size}-{rank}.pt")
    if size > 1:
        torch.save(lost(place), FOLDER / f"lost-{size}-{rank}.pt")


def main():
    weight = torch.nn.Parameter(torch.zeros(1))  # what torch loads late is loaded once for all
    weight.grad = torch.zeros(1)
    torch.optim.Adam([weight]).step()
    children = []
    for size, rank in [(number, rank) for number in SHARES for rank in range(number)]:
        children.append(os.fork())
        if children[-1] == 0:
            try:
                run(rank, size)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    sys.exit(any(statuses))


if __name__ == "__main__":
    main()
