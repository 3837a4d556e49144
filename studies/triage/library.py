"""What a library of adapters by recurring condition could gain at most, on validation data.

    python studies/triage/library.py grid grid_0 --root DIR --samples 64
    python studies/triage/library.py sounding_shapes sounding_shapes_0 --samples 64

Every fourth domain of the interleaved order recurs `--rounds` times. "one set": triage as it is,
whose adapters go on learning from condition to condition. "a set per domain": told the name of the
domain, which no method is, triage gets back the adapters that it had at the end of the last visit.
A library that must recognise a condition by itself cannot gain more. Prints the accuracy of both
in each round.
"""

from dataclasses import dataclass

import numpy as np
import torch
import tyro

import dasp
import streams
from dasp.bench.datasets import DataOptions
from dasp.bench.features import Features, FeatureSpec
from dasp.bench.references import find_model
from dasp.bench.store import Store


@dataclass(frozen=True)
class Options(streams.Options):
    """What is compared, and on what."""

    rounds: int = 3


def main(options: Options) -> None:
    """Run both on the recurring stream and print their accuracy in each round."""
    torch.set_num_threads(1)
    split = DataOptions(options.data, options.root, streams.ALL[options.data], "validation", seed=1)
    data, model, store = split.open(), find_model(options.model), Store(options.store)
    features, source = Features(data, model, store), Features(data.source(128), model, store)
    clean = {
        name: torch.tensor(np.array(source.get(FeatureSpec(name, None, encoded=True))))
        for name in features.modalities
    }
    visits = streams.conditions(options, features.modalities, "interleaved")[::4]
    for library in (False, True):
        tta = dasp.adapt(model, "triage", lr=options.lr)
        tta.fit_on_tokens([clean])
        fresh = _copy(tta)
        known: dict[str, dict[str, torch.Tensor]] = {}
        right = np.zeros(options.rounds)
        for number in range(options.rounds):
            seen = 0
            for condition in visits:
                name = str(next(iter(condition.values())))
                if library:
                    tta.adapters.load_state_dict(known.get(name, fresh))
                for rows, tokens in _batches(options, features, condition, f"{name} {number}"):
                    hits = tta.on_tokens(tokens).logits.argmax(dim=1) == features.labels[rows]
                    right[number] += int(hits.sum())
                    seen += len(rows)
                known[name] = _copy(tta)
            right[number] *= 100 / seen
        label = "a set per domain" if library else "one set"
        print(f"{options.model}: {label}: {' '.join(f'{r:.2f}' for r in right)}", flush=True)


def _copy(tta: dasp.Adaptation) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in tta.adapters.state_dict().items()}


def _batches(options, features, condition, key):
    count = min(options.samples, len(features.labels))
    order = streams.numpy_generator(0, "order", key).permutation(count)
    for start in range(0, count, options.batch):
        rows = order[start : start + options.batch]
        arrays = {
            name: features.get(FeatureSpec(name, condition.get(name), encoded=True))
            for name in features.modalities
        }
        yield rows, {name: torch.tensor(np.array(own[rows])) for name, own in arrays.items()}


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
