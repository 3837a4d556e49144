"""What the parts of a run take with CAV-MAE ViT-B, a batch of 16 at a time, timed in turn."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from measuring import Seconds, timed
from rich.progress import track

import dasp
from dasp.bench.gather import gather
from dasp.bench.store import Store

BATCH = 16


def vit_parts(methods: Sequence[str], rounds: int) -> dict[str, list[Seconds]]:
    """Time each encoder, keeping and reading a batch of tokens, and each method on tokens."""
    torch.manual_seed(0)
    model = dasp.models.CavMae(num_classes=309).eval()
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "audio": torch.randn(BATCH, 1024, 128, generator=generator),
        "video": torch.randn(BATCH, 3, 224, 224, generator=generator),
    }
    with torch.no_grad():
        tokens = model.encode(inputs)
    times: dict[str, list[Seconds]] = {}
    for round_ in track(range(rounds + 1), description="ViT-B's parts", transient=True):
        for name, call in _calls(methods, model, inputs, tokens):
            seconds = timed(call)
            if round_:  # the first round warms up
                times.setdefault(name, []).append(seconds)
    return times


def _calls(methods, model, inputs, tokens) -> Iterator[tuple[str, Callable[[], object]]]:
    """Give what is timed; getting it ready is not."""
    for name, value in inputs.items():
        yield f"encode {name}", partial(_encode, model, {name: value})
    with _kept(tokens) as (write, read):
        yield "write tokens", write
        yield "read tokens", read
    for name in methods:
        tta = dasp.adapt(model, name)
        tta.on_tokens(tokens)  # the first call takes the snapshot
        yield name, partial(tta.on_tokens, tokens)
        tta.reset()


@torch.no_grad()
def _encode(model, inputs) -> None:
    model.encode(inputs)


@contextmanager
def _kept(tokens) -> Iterator[tuple[Callable[[], object], Callable[[], object]]]:
    """Give calls that keep a batch of tokens in a store and read it back."""
    rows = np.arange(BATCH)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)

        def arrays() -> list:
            return [
                store.get({"kind": "tokens", "name": n}, BATCH, lambda _, t=t: iter([t.numpy()]))
                for n, t in tokens.items()
            ]

        yield arrays, lambda: [gather([a], np.zeros_like(rows), rows) for a in arrays()]
