"""The first run: train the toy model, shift its sensors, and see which method repairs it."""

import copy
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from dasp.methods import METHODS, adapt
from dasp.models import Toy
from dasp.streams.synthetic import CLEAN, SyntheticWorld

DOMAINS = ["audio", CLEAN, "video", "audio", CLEAN, "video"]
CLASSES, NOISE, STRENGTH = 12, 1.8, 3.0
TRAINING_STEPS, BATCHES, LR = 400, 20, 1e-3


@dataclass
class Tally:
    """Counts of one method over the stream."""

    right: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    flags: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    updates: int = 0

    def accuracy(self, domain: str | None = None) -> float:
        """Return the percentage right, in one domain or in all."""
        domains = [domain] if domain else list(self.seen)
        right = sum(self.right[name] for name in domains)
        return 100 * right / sum(self.seen[name] for name in domains)


def train_toy(world: SyntheticWorld, seed: int, progress: Progress) -> Toy:
    """Train on clean batches: CE of the joint and half the CE of each modality alone."""
    model = Toy(num_classes=world.classes, seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in progress.track(range(TRAINING_STEPS), description="train the toy model"):
        batch = world.draw(128, seed=10**6 + step)
        tokens = model.encode(batch.inputs)
        loss = F.cross_entropy(model.fuse(tokens).logits, batch.labels)
        for name in tokens:
            alone = model.fuse({name: tokens[name]}).logits
            loss = loss + 0.5 * F.cross_entropy(alone, batch.labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


def run_method(name: str, model: Toy, world: SyntheticWorld, progress: Progress) -> Tally:
    """Adapt a copy of the model by one method through the whole stream, counting."""
    tta, tally = adapt(copy.deepcopy(model), name, lr=LR), Tally()
    total = len(DOMAINS) * BATCHES
    stream = world.stream(DOMAINS, BATCHES, strength=STRENGTH)
    for batch in progress.track(stream, total=total, description=name):
        outcome = tta(batch.inputs)
        tally.right[batch.domain] += int((outcome.logits.argmax(dim=1) == batch.labels).sum())
        tally.seen[batch.domain] += len(batch.labels)
        tally.updates += outcome.updated
        if outcome.diagnosis:
            flagged = "+".join(sorted(outcome.diagnosis.biased)) or "none"
            tally.flags[batch.domain][flagged] += 1
    return tally


def first_run(seed: int = 0) -> dict[str, Tally]:
    """Train the toy model, run every method on one shifted stream, print the table."""
    console, world = Console(), SyntheticWorld(classes=CLASSES, noise=NOISE, seed=seed)
    with Progress(console=console, transient=True) as progress:
        model = train_toy(world, seed, progress)
        tallies = {name: run_method(name, model, world, progress) for name in METHODS}
    console.print(_table(tallies))
    flags = tallies["dasp"].flags
    for domain, counts in flags.items():
        shares = ", ".join(f"{flag} on {count}" for flag, count in counts.most_common())
        console.print(f"dasp's diagnosis while the {domain} stream ran: {shares} batches")
    return tallies


def _table(tallies: dict[str, Tally]) -> Table:
    source = tallies["source"]
    table = Table(title=f"Accuracy (%) on a synthetic stream that shifts: {' → '.join(DOMAINS)}")
    table.add_column("method")
    for column in (CLEAN, "audio shifted", "video shifted", "all", "gain", "updates"):
        table.add_column(column, justify="right")
    best = max(tallies.values(), key=Tally.accuracy)
    for name, tally in tallies.items():
        cells = [f"{tally.accuracy(domain):.1f}" for domain in (CLEAN, "audio", "video", None)]
        cells += [f"{tally.accuracy() - source.accuracy():+.1f}", str(tally.updates)]
        table.add_row(name, *cells, style="bold" if tally is best else "")
    return table
