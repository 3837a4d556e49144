"""How often the diagnosis is right, whatever the mix of classes, and how sure it is.

    python studies/diagnosis/trust.py                              # tables from results/, seconds
    python studies/diagnosis/trust.py --measure --recordings DIR   # DIR has grid and dsa in it

Fits the diagnosis with clean samples and gives it batches of clean and damaged samples: of all
classes, sorted by class, of a Dirichlet mix, of one class. One modality is damaged, or two at once:
the n-th costly damage of one with the n-th of another. Nothing adapts, and no batch knows of
another. Without --recordings only the built-in set and late-fusion models are measured.
results/ has all models, each with two draws of the fitted samples.
Measurements are written to results/, tables and the calibration figure to out/studies/diagnosis.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import late
import numpy as np
import pandas as pd
import torch
import views
from numpy.typing import NDArray

from dasp.core.seeding import numpy_generator
from dasp.core.types import Fused
from dasp.methods.diagnosis import Diagnoser, sureness

HERE = Path(__file__).resolve().parent
BATCH, CLEAN_BATCHES, DAMAGED_BATCHES = 64, 100, 8
MIXES = ("shuffled", "sorted", "dirichlet", "one class")
COSTLY = 2.0  # points of accuracy
BINS = 10
KEYS = ("summary", "embedding", "logits")
Rows = NDArray[np.int64]
Domain = tuple[str, str, float, torch.Tensor]  # name, modality, cost in points, remembered rows
Condition = tuple[str, float, dict[str, torch.Tensor]]  # name, cost, rows of what is damaged
NOTHING: dict[str, torch.Tensor] = {}


class Watched:
    """The views of one model, and a diagnosis fitted with some of its clean samples."""

    def __init__(self, folder: Path, fit: int, seed: int) -> None:
        self.folder, self.name, clean = folder, folder.name, dict(np.load(folder / "clean.npz"))
        self.names = tuple(dict.fromkeys(key.split(".")[0] for key in clean if "." in key))
        draws = numpy_generator(seed, "fit", self.name)
        if (folder / "fit.npz").exists():
            source = dict(np.load(folder / "fit.npz"))
            fitted, rest = draws.permutation(len(source["labels"]))[:fit], slice(None)
        else:  # within the same recordings: those that are fitted, at most half, take no part
            source, order = clean, draws.permutation(len(clean["labels"]))
            fit = min(fit, len(order) // 2)
            fitted, rest = order[:fit], np.sort(order[fit:])
        self.rest, self.labels, self.right = rest, clean["labels"][rest], clean["right"][rest]
        self.clean = {n: {k: clean[f"{n}.{k}"][rest] for k in KEYS} for n in self.names}
        self.diagnoser = Diagnoser(self.names, queue=0)
        known = {n: {k: source[f"{n}.{k}"][fitted] for k in KEYS} for n in self.names}
        self.diagnoser.fit({n: _summary(own) for n, own in known.items()}, _alone(known))
        self._rows = self.diagnoser._rows(
            {n: _summary(v) for n, v in self.clean.items()}, _alone(self.clean)
        )

    def scores(self, batch: Rows, damaged: Mapping[str, torch.Tensor] = NOTHING) -> list[float]:
        """Return the score of each modality; `damaged` replaces the rows of some of them."""
        seen = self._rows[torch.from_numpy(batch)]
        for name, rows in damaged.items():
            seen[:, self.names.index(name)] = rows[torch.from_numpy(batch)]
        mixed = self.diagnoser._is_mixed(self.names, seen)
        return list(self.diagnoser._scores(self.names, seen, mixed).values())

    def domains(self) -> Iterator[Domain]:
        """Yield each damage."""
        for path in sorted(self.folder.glob("*-*.npz")):
            own, modality = dict(np.load(path)), path.stem.split("-")[0]
            cost = 100 * (self.right.mean() - own["right"][self.rest].mean())
            view = {modality: {k: own[f"{modality}.{k}"][self.rest] for k in KEYS}}
            rows = self.diagnoser._rows({modality: _summary(view[modality])}, _alone(view))
            yield path.stem, modality, float(cost), rows[:, self.names.index(modality)]


def pairs(domains: Sequence[Domain], names: Sequence[str]) -> Iterator[Condition]:
    """Yield conditions in which two modalities are damaged, each of which costs two points."""
    costly = {n: [d for d in domains if d[1] == n and d[2] >= COSTLY] for n in names}
    for one, other in combinations(names, 2):
        most = max(len(costly[one]), len(costly[other])) if costly[one] and costly[other] else 0
        for place in range(most):
            both = [costly[name][place % len(costly[name])] for name in (one, other)]
            cost = min(own[2] for own in both)
            yield "+".join(own[0] for own in both), cost, {own[1]: own[3] for own in both}


def _summary(own: dict[str, np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(own["summary"]).double()


def _alone(view: dict[str, dict[str, np.ndarray]]) -> dict[str, Fused]:
    return {
        name: Fused(torch.from_numpy(own["embedding"]), torch.from_numpy(own["logits"]))
        for name, own in view.items()
    }


def batches(labels: Rows, mix: str, count: int, draws: np.random.Generator) -> list[Rows]:
    """Return `count` batches of up to 64 different samples with a mix of classes."""
    by_class = {c: np.flatnonzero(labels == c) for c in np.unique(labels)}
    found: list[Rows] = []
    while len(found) < count:
        if mix == "shuffled":
            found.append(draws.permutation(len(labels))[:BATCH])
        elif mix == "one class":
            found.append(draws.permutation(by_class[draws.choice(list(by_class))])[:BATCH])
        elif mix == "dirichlet":
            shares = draws.dirichlet(np.full(len(by_class), 0.1))
            weights = np.zeros(len(labels))
            for share, rows in zip(shares, by_class.values(), strict=True):
                weights[rows] = share / len(rows)
            size = min(BATCH, int((weights > 1e-9).sum()))
            found.append(draws.choice(len(labels), size, replace=False, p=weights / weights.sum()))
        else:
            order = [draws.permutation(by_class[c]) for c in draws.permutation(list(by_class))]
            joined = np.concatenate(order)
            starts = range(0, len(joined) - BATCH + 1, BATCH)
            found += [joined[start : start + BATCH] for start in starts]
    return found[:count]


def measured(folder: Path, fit: int, seed: int) -> pd.DataFrame:
    """Return one row per batch and modality: what was given, and its score."""
    watched, table = Watched(folder, fit, seed), []

    def add(
        mix: str, domain: str, damaged: str, cost: float, all_scores: list[list[float]]
    ) -> None:
        for number, scores in enumerate(all_scores):
            for name, score in zip(watched.names, scores, strict=True):
                row = (watched.name, fit, seed, mix, domain, damaged, round(cost, 2))
                table.append((*row, number, name, round(score, 4)))

    for mix in MIXES:
        draws = numpy_generator(seed, "clean", mix)
        own = batches(watched.labels, mix, CLEAN_BATCHES, draws)
        add(mix, "clean", "", 0.0, [watched.scores(batch) for batch in own])
    domains = list(watched.domains())
    single: list[Condition] = [(name, cost, {own: rows}) for name, own, cost, rows in domains]
    for domain, cost, damaged in [*single, *pairs(domains, watched.names)]:
        for mix in ("shuffled", "sorted"):
            own = batches(watched.labels, mix, DAMAGED_BATCHES, numpy_generator(seed, domain, mix))
            found = [watched.scores(batch, damaged) for batch in own]
            add(mix, domain, "+".join(damaged), cost, found)
    columns = [
        "model",
        "fit",
        "seed",
        "mix",
        "domain",
        "damaged",
        "cost",
        "batch",
        "modality",
        "score",
    ]
    return pd.DataFrame(table, columns=columns)


def by_batch(scores: pd.DataFrame) -> pd.DataFrame:
    """Return one row per batch: whether all that is damaged was flagged, and anything else."""
    key = ["model", "fit", "seed", "mix", "domain", "damaged", "cost", "batch"]
    flags = scores.assign(flag=scores.score > 1, own=is_damaged(scores))
    hit = flags[flags.own].groupby(key).flag.all().rename("hit")
    other = flags[~flags.own].groupby(key).flag.any().rename("other")
    both = pd.concat([hit, other], axis=1).astype("boolean").fillna(False).reset_index()
    return both.assign(right=both.hit & ~both.other)


def is_damaged(scores: pd.DataFrame) -> list[bool]:
    """Tell, per row, whether its modality is damaged."""
    rows = zip(scores.modality, scores.damaged, strict=True)
    return [name in damaged.split("+") for name, damaged in rows]


def kind_of(model: str) -> str:
    """Return the data set that a model belongs to."""
    if model.startswith("sounding_shapes"):
        return {"sound": "shapes, sound", "depth": "shapes, depth"}.get(
            model.split("_")[2], "shapes"
        )
    return model.split("_")[0]


def interval(shares: pd.Series, draws: np.random.Generator) -> str:
    """Return the mean of per-domain shares with a 95% bootstrap interval over domains, in %."""
    values = 100 * shares.to_numpy(dtype=float)
    again = draws.choice(values, (1000, len(values))).mean(axis=1)
    low, high = np.quantile(again, [0.025, 0.975])
    return f"{values.mean():.1f} ({low:.1f}–{high:.1f})"


def diagnosis_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Return, per data set, how often the diagnosis is right and how often clean is flagged."""
    rows, found = [], by_batch(scores[~scores.damaged.str.contains("+", regex=False)])
    found["set"] = found.model.map(kind_of)
    for (name, fit), own in found.groupby(["set", "fit"], sort=False):
        draws, clean = numpy_generator(0, "interval"), own[own.domain == "clean"]
        costly = own[(own.domain != "clean") & (own.cost >= COSTLY)]
        row = {"set": name, "fitted": fit, "models": own.model.nunique()}
        row["domains"] = len(costly.groupby(["model", "domain"]))
        for mix in ("shuffled", "sorted"):
            groups = costly[costly.mix == mix].groupby(["model", "domain"])
            row[f"right, {mix}"] = interval(groups.right.mean(), draws)
        for mix in MIXES:
            row[f"clean flagged, {mix}"] = f"{100 * clean[clean.mix == mix].other.mean():.1f}"
        rows.append(row)
    return pd.DataFrame(rows)


def pairs_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Return, per data set, how often exactly the two damaged modalities are flagged."""
    rows, found = [], by_batch(scores[scores.damaged.str.contains("+", regex=False)])
    found["set"] = found.model.map(kind_of)
    for (name, fit), own in found.groupby(["set", "fit"], sort=False):
        draws = numpy_generator(0, "interval")
        row = {"set": name, "fitted": fit, "models": own.model.nunique()}
        row["pairs"] = len(own.groupby(["model", "domain"]))
        for mix in ("shuffled", "sorted"):
            groups = own[own.mix == mix].groupby(["model", "domain"])
            row[f"right, {mix}"] = interval(groups.right.mean(), draws)
        row["a third one flagged"] = f"{100 * own.other.mean():.1f}"
        rows.append(row)
    return pd.DataFrame(rows)


def missed_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the costly damages that are named on fewer than 95% of shuffled batches."""
    found = by_batch(scores[~scores.damaged.str.contains("+", regex=False)])
    costly = found[(found.domain != "clean") & (found.cost >= COSTLY) & (found.mix == "shuffled")]
    each = costly.groupby(["model", "domain"]).agg(cost=("cost", "first"), right=("right", "mean"))
    each["right"] *= 100
    return each[each.right < 95].sort_values(["model", "right"]).reset_index()


def calibration(scores: pd.DataFrame) -> pd.DataFrame:
    """Return, per bin of probability: its mean, the share really damaged, and the number.

    Each batch and modality counts; damage is any that costs two points, of one modality or of two.
    In each model, clean and damaged ones weigh the same.
    """
    own = scores[np.array(is_damaged(scores)) & (scores.cost >= COSTLY)]
    clean = scores[scores.domain == "clean"]
    parts = []
    for model in scores.model.unique():
        for truth, part in ((1.0, own[own.model == model]), (0.0, clean[clean.model == model])):
            if len(part):
                sure = [sureness(*own) for own in zip(part.score, part.fit, strict=True)]
                parts.append(pd.DataFrame({"p": sure, "truth": truth, "weight": 1 / len(part)}))
    every = pd.concat(parts)
    every["bin"] = (every.p * BINS).astype(int).clip(upper=BINS - 1)
    weight = every.groupby("bin").weight.sum()
    mean = (every.p * every.weight).groupby(every.bin).sum() / weight
    truth = (every.truth * every.weight).groupby(every.bin).sum() / weight
    return pd.DataFrame({"probability": mean, "damaged": truth, "weight": weight / weight.sum()})


def expected_error(table: pd.DataFrame) -> float:
    """Return the expected calibration error."""
    return float(((table.probability - table.damaged).abs() * table.weight).sum())


def draw_calibration(table: pd.DataFrame, path: Path) -> None:
    """Draw the share really damaged by probability."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(4, 4), layout="constrained")
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    axes.scatter(table.probability, table.damaged, s=20 + 600 * table.weight, alpha=0.7)
    axes.set(xlabel="probability given", ylabel="share really damaged", xlim=(-0.05, 1.05))
    axes.set_title(f"expected calibration error {expected_error(table):.3f}")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def markdown(table: pd.DataFrame) -> str:
    """Return a table as Markdown."""
    rows = [table.columns, ["---"] * len(table.columns), *table.astype(str).to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--split", choices=["validation", "test"], default="test")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--models", nargs="+", help="only these")
    parser.add_argument("--fit", type=int, nargs="+", default=[512, 128, 32])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--recordings", type=Path, help="directory with grid and dsa")
    parser.add_argument("--views", type=Path, default=Path("out/studies/diagnosis/views"))
    parser.add_argument("--store", type=Path, default=Path("out/store"))
    parser.add_argument("--out", type=Path, default=Path("out/studies/diagnosis"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept = HERE / "results" / f"{options.split}.csv.gz"
    options.out.mkdir(parents=True, exist_ok=True)
    if options.measure:
        folder, parts = options.views / options.split, []
        chosen = list(views.subjects(options.split, options.recordings))
        writers = {s.name: (lambda s=s: views.write(s, folder, options.store)) for s in chosen}
        writers |= {n: (lambda n=n: late.write(n, options.split, folder)) for n in late.NAMES}
        for name in options.models or writers:
            writers[name]()
            print(name, flush=True)
            parts += [measured(folder / name, fit, s) for fit in options.fit for s in options.seeds]
        kept.parent.mkdir(exist_ok=True)
        pd.concat(parts).to_csv(kept, index=False)
    scores = pd.read_csv(kept, keep_default_na=False)
    for fit, own in scores.groupby("fit"):
        table = calibration(own)
        print(f"\n{fit} clean samples: expected calibration error {expected_error(table):.3f}")
        print(table.round(3).to_string())
        draw_calibration(table, options.out / f"calibration_{fit}.svg")
    print("\n" + markdown(diagnosis_table(scores)))
    print("\n" + markdown(pairs_table(scores)))
    print("\n" + markdown(missed_table(scores[scores.fit == scores.fit.max()]).round(1)))


if __name__ == "__main__":
    main()
