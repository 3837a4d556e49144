"""What lower precision changes in accuracy and diagnosis: faster encoders, and float16 tokens.

    python studies/precision/precision.py encoders     # six minutes on two cores
    python studies/precision/precision.py tokens       # six minutes on two cores

*encoders*: the paper's five protocols on the shipped models, once with each kind of
`dasp.models.faster` and once with float32, the same samples in the same order. *tokens*: every
token-level row of the plan `quick`, on tokens stored as float32 and as float16.

Changed diagnoses (flags) are batches in which other modalities are flagged; the largest change of a
score is over all batches, beside that score. Samples turned are right in one, wrong in the other.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dasp.bench.engines import Workspace
from dasp.bench.plan import Plan, load_plan, of_methods
from dasp.bench.references import find_method
from dasp.bench.results import Counts, Result
from dasp.bench.runner import run_plan

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from measuring import finish, parse

KINDS = ["bfloat16", "int8", "compiled"]
METHODS = ("source", "read", "dasp", "triage")
Pair = tuple[Counts, Counts]


def hits(counts: Counts) -> np.ndarray:
    return np.concatenate([domain.sample_hits(domain.seen) for domain in counts.domains])


def turned(pairs: list[Pair]) -> float:
    """Return the percentage of samples that are right in one run of a pair only."""
    return 100 * float(np.concatenate([hits(a) != hits(b) for a, b in pairs]).mean())


def changed_flags(pairs: list[Pair]) -> list[bool]:
    batches = [zip(a.batches.biased, b.batches.biased, strict=True) for a, b in pairs]
    return [x != y for batch in batches for x, y in batch]


def largest_change(pairs: list[Pair]) -> tuple[float, float]:
    """Return the largest change of a score, and that score in the second run of its pair."""
    own, exact = (
        np.concatenate([np.ravel(list(p[i].batches.scores.values())) for p in pairs]).astype(float)
        for i in (0, 1)
    )
    place = np.abs(own - exact).argmax()
    return abs(float(own[place] - exact[place])), float(exact[place])


def of_encoders(pairs: list[Pair]) -> dict[str, Any]:
    """Compare runs with one kind of encoders with those of float32."""
    differences = [a.accuracy - b.accuracy for a, b in pairs]
    found: dict[str, Any] = {
        "accuracy": round(float(np.mean([a.accuracy for a, _ in pairs])), 3),
        "difference": round(float(np.mean(differences)), 3),
        "lowest": round(min(differences), 3),
        "highest": round(max(differences), 3),
        "turned_percent": round(turned(pairs), 3),
    }
    if pairs[0][0].batches.biased is not None:
        flags, (change, score) = changed_flags(pairs), largest_change(pairs)
        found["diagnoses_changed"] = f"{sum(flags)} of {len(flags)}"
        found |= {"largest_change": round(change, 5), "of_a_score": round(score, 4)}
    return found


def of_tokens(half: Counts, full: Counts) -> dict[str, float]:
    """Compare a run on float16 tokens with that on float32 ones."""
    pairs = [(half, full)]
    found = {
        "difference": round(half.accuracy - full.accuracy, 4),
        "samples_changed": round(turned(pairs), 4),
    }
    if full.batches.biased is not None:
        found["flags_changed"] = round(100 * float(np.mean(changed_flags(pairs))), 4)
        found["score_difference"] = round(largest_change(pairs)[0], 6)
    return found


def run(plan: Plan) -> dict[str, list[Result]]:
    with tempfile.TemporaryDirectory() as folder:
        return run_plan(plan, Workspace(Path(folder, "results"), Path(folder, "store")))


def encoders(plan: Plan, options) -> dict[str, Any]:
    names = tuple(f"sounding_shapes_{number}" for number in range(options.models))
    models = {"float32": names}
    models |= {kind: tuple(f"{name}:{kind}" for name in names) for kind in options.kinds}
    plan = of_methods(plan, METHODS)
    runs = {kind: run(replace(plan, models=own)) for kind, own in models.items()}
    exact = runs["float32"]
    effect = {}
    for label in plan.methods:
        for kind, own in runs.items():
            pairs = zip(own[label], exact[label], strict=True)
            effect[f"{label}, {kind}"] = of_encoders([(a.counts, b.counts) for a, b in pairs])
    seen = sum(result.counts.seen for result in exact["source"])
    return {"effect": effect, "samples of each row": seen}


def tokens(plan: Plan) -> dict[str, Any]:
    rows = {k: v for k, v in plan.methods.items() if not find_method(v.method).tunes_encoder}
    plan = replace(plan, methods=rows)
    full, half = run(plan), run(replace(plan, tokens="float16"))
    figures: dict[str, Any] = {"rows": {}, "largest": {}}
    for label, results in full.items():
        pairs = zip(half[label], results, strict=True)
        streams = {b.run.protocol: of_tokens(a.counts, b.counts) for a, b in pairs}
        figures["rows"][label] = streams
        figures["largest"][label] = {
            name: max((row[name] for row in streams.values()), key=abs)
            for name in next(iter(streams.values()))
        }
    return figures


def main() -> None:
    options = parse(__doc__, "encoders or tokens", samples=0, models=3, kinds=KINDS)
    plan, what = load_plan("quick"), options.what
    samples = options.samples or (128 if what == "encoders" else 512)
    plan = replace(plan, data=replace(plan.data, samples=samples))
    figures = encoders(plan, options) if what == "encoders" else tokens(plan)
    finish(options, f"Lower precision of {what}, {samples} samples per domain", figures)


if __name__ == "__main__":
    main()
