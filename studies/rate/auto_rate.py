"""Compare lr="auto" with the fixed default and with tuned rates, on validation data.

    python studies/rate/auto_rate.py dsa_0 dsa_1 --root DIR        # recordings: DIR has dsa or grid
    python studies/rate/auto_rate.py sounding_shapes_1 --methods dasp tent read

One stream per model: some domains at severity 5, drawn by the seed, one after another without a
reset, in batches of 64. No test sample is read. Prints a row per model and method: the accuracy of
Source, of the default rate, of each fixed rate given, of lr="auto", and the rate that it took.
docs/own_model.md has the table.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch

import dasp
from dasp.bench.datasets import DataOptions, Dataset
from dasp.streams.domains import all_domains

BATCH, CLEAN = 64, 64


def opened(model: str, samples: int, root: Path | None) -> Dataset:
    kind = model.rsplit("/", 1)[-1].split("_")[0]
    own = {"root": root} if kind in ("dsa", "grid") else {}
    name = kind if own else "sounding_shapes"
    flavour = "sound" if "shapes_sound" in model else "balanced"
    return DataOptions(
        name=name, split="validation", samples=samples, flavour=flavour, seed=1, **own
    ).open()


def column(dataset: Dataset, modality: str, domain=None) -> torch.Tensor:
    samples = dataset.samples(modality, domain)
    return torch.stack([samples[i].inputs[modality] for i in range(len(samples))]).float()


class Stream:
    """The batches of some domains, each one modality damaged; kept in memory."""

    def __init__(self, model, dataset: Dataset, count: int, sensors: list[str], seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        known = all_domains(sensors or model.modalities, severities=(5,))
        order = torch.randperm(len(known), generator=draw)[:count]
        self.labels = torch.tensor(dataset.labels())
        self.clean = {name: column(dataset, name) for name in model.modalities}
        self.damaged = [
            (known[i].modality, column(dataset, known[i].modality, known[i])) for i in order
        ]
        self.orders = [torch.randperm(len(self.labels), generator=draw) for _ in order]

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        for (modality, values), order in zip(self.damaged, self.orders, strict=True):
            for rows in order.split(BATCH):
                whole = {**self.clean, modality: values}
                yield {name: own[rows] for name, own in whole.items()}, self.labels[rows]


def accuracy(model, method: str, lr, stream: Stream, clean) -> tuple[float, str]:
    options = {"stream_length": sum(1 for _ in stream)} if method == "sumi" else {}
    tta = dasp.adapt(model, method, lr=lr, **options)
    if tta.method.needs_source:
        tta.fit([clean])
    right = seen = 0
    for inputs, labels in stream:
        right += int((tta(inputs).logits.argmax(1) == labels).sum())
        seen += len(labels)
    found = str(tta.memory.rate)
    tta.reset()
    return 100 * right / seen, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--methods", nargs="+", default=list(dasp.METHODS))
    parser.add_argument("--rates", nargs="*", type=float, default=[], help="tuned rates to compare")
    parser.add_argument("--domains", type=int, default=8)
    parser.add_argument("--samples", type=int, default=192)
    parser.add_argument("--sensors", nargs="*", default=[], help="which are damaged; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--root", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    fixed = "".join(f" {rate:g} |" for rate in given.rates)
    print(f"| model | method | source | default |{fixed} auto | rate taken |")
    print("|---|---|---:|---:|" + "---:|" * len(given.rates) + "---:|---:|")
    for name in given.models:
        model = dasp.load_model(name)
        dataset = opened(name, given.samples, given.root)
        stream = Stream(model, dataset, given.domains, given.sensors, given.seed)
        training = dataset.source(CLEAN)
        clean = {modality: column(training, modality) for modality in model.modalities}
        source = accuracy(model, "source", 1.0, stream, clean)[0]
        for method in given.methods:
            try:
                default = dasp.METHODS[method].default_lr
                rates = (default, *given.rates, "auto")
                found = [accuracy(model, method, lr, stream, clean) for lr in rates]
            except dasp.DaspError:
                continue  # the method does not fit this model
            if found[-1][1] == f"{default:g}" or not dasp.adapt(model, method).memory.weights:
                continue  # nothing to choose
            shown = " | ".join(f"{share:.1f}" for share, _ in found)
            print(f"| {name} | {method} | {source:.1f} | {shown} | {found[-1][1]} |", flush=True)


if __name__ == "__main__":
    main()
