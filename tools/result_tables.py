"""Make the tables of docs/results.md, docs/robust.md and README.md from the committed results.

Each function returns the Markdown of one kind of block, see fill_pages.py. Accuracies are from
counts over all domains of a stream, gains are paired with Source by model and seed, and ± is the
standard deviation over source models.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import pandas as pd

import dasp

ROOT = Path(__file__).parents[1]
STREAM, REPLICATE = ["protocol", "samples", "batch_size"], ["model", "seed"]
PROTOCOLS = (
    "per_domain/video",
    "per_domain/audio",
    "continual/video",
    "continual/audio",
    "interleaved",
)
OURS = ("dasp", "dasp robust", "dasp robust unfitted")


@lru_cache
def runs(folder: str) -> pd.DataFrame:
    """Return one row per run of a row of a plan, with its accuracy and its gain over Source."""
    frame = dasp.results(ROOT / folder)
    keys = ["plan", "label", "method", *STREAM, *REPLICATE]
    sums = frame.groupby(keys, sort=False)[["right", "seen"]].sum().reset_index()
    sums["accuracy"] = 100 * sums["right"] / sums["seen"]
    place = pd.MultiIndex.from_frame(sums[[*STREAM, *REPLICATE]])
    source = sums.set_index(place)[(sums["label"] == "source").to_numpy()]["accuracy"]
    source = source[~source.index.duplicated()]
    sums["gain"] = sums["accuracy"].to_numpy() - source.reindex(place).to_numpy()
    return sums


def accuracy(what: str) -> str:
    """Table of a plan: accuracy and gain of each row in each protocol, and the average gain."""
    found, protocols = chosen(what)
    header = ["method", *map(words, protocols), "average gain"]
    columns = []
    for protocol in protocols:
        of = found[found["protocol"] == protocol].groupby("label", sort=False)
        columns.append(best({name: (_both(own), own["accuracy"].mean()) for name, own in of}))
    average = _averages(found)
    last = best({n: (spread(g), g.mean()) for n, g in average.items() if n != "source"})
    rows = [[name, *(c.get(name, "") for c in columns), last.get(name, "–")] for name in average]
    return markdown(header, rows)


def gains(what: str) -> str:
    """Table of a plan: gain over Source of each row in each protocol, with two decimals."""
    found, protocols = chosen(what)
    rows = []
    for name, average in _averages(found).items():
        if name == "source":
            continue
        own = found[found["label"] == name]
        cells = [own[own["protocol"] == p]["gain"] for p in protocols]
        rows.append([name, *(number(c.mean(), True, 2) for c in cells), spread(average, digits=2)])
    return markdown(["", *map(words, protocols), "average"], rows)


def main_table(what: str) -> str:
    """README's table: Source, the best rival of each protocol, DASP and our own method."""
    first, second = what.split()
    paper, own = runs(first), runs(second)
    paper = paper[paper["plan"] == "paper/overview"]
    rows: dict[str, list[str]] = {"source": [], "best rival": [], "dasp": [], "dasp robust": []}
    for protocol in PROTOCOLS:
        of = paper[paper["protocol"] == protocol]
        mean = of.groupby("label", sort=False)[["accuracy", "gain"]].mean()
        mean.loc["dasp robust"] = own[
            (own["plan"] == "robust/paper")
            & (own["protocol"] == protocol)
            & (own["label"] == "dasp robust")
        ][["accuracy", "gain"]].mean()
        rival = mean.drop(index=["source", *OURS], errors="ignore")["accuracy"].idxmax()
        shown = {"best rival": rival, "dasp": "dasp", "dasp robust": "dasp robust"}
        cells = {}
        for row, name in shown.items():
            value, gain = mean.loc[name]
            text = f"{value:.1f} ({number(gain, True)})"
            cells[row] = (f"{name} {text}" if row == "best rival" else text, value)
        for row, text in best(cells).items():
            rows[row].append(text)
        rows["source"].append(f"{mean.loc['source', 'accuracy']:.1f}")
    return markdown(
        ["accuracy (%), gain over Source", *map(words, PROTOCOLS)],
        [[k, *v] for k, v in rows.items()],
    )


def streams(folder: str) -> str:
    """Table of all streams of `make robust`: Source, the best rival, DASP and our own method."""
    found = runs(folder)
    plans = [
        p for p in found["plan"].unique() if not p.startswith(("robust/ablation", "robust/guard"))
    ]
    found = found[found["plan"].isin(plans)].drop_duplicates(["label", *STREAM, *REPLICATE])
    counts = found.drop_duplicates(STREAM).groupby("protocol").size()
    rows = []
    for (protocol, samples, batch), own in found.groupby(STREAM, sort=False):
        of = {name: one["gain"] for name, one in own.groupby("label", sort=False)}
        source = own[own["label"] == "source"]["accuracy"].mean()
        rivals = {
            n: g.mean() for n, g in of.items() if n not in ("source", *OURS) and n in dasp.METHODS
        }
        cells = {n: (spread(of[n]), of[n].mean()) for n in OURS if n in of}
        if rivals:
            rival = max(rivals, key=rivals.__getitem__)
            cells["rival"] = (f"{rival} {number(rivals[rival], True)}", rivals[rival])
        shown = best(cells)
        detail = [f"{samples:,} samples per domain"] if counts[protocol] > 1 else []
        detail += [f"batches of {batch}"] if batch != 64 else []
        name = words(protocol) + (f" ({'; '.join(detail)})" if detail else "")
        rows.append([name, f"{source:.1f}", *(shown.get(n, "–") for n in ("rival", *OURS))])
    return markdown(["stream", "source", "best of the others", *OURS], rows)


def chosen(what: str) -> tuple[pd.DataFrame, list[str]]:
    folder, plan, *but = what.split()
    found = runs(folder)
    found = found[(found["plan"] == plan) & ~found["protocol"].isin(but)]
    return found, list(found["protocol"].unique())


def words(protocol: str) -> str:
    """Return a protocol's name for a heading: "per_domain/video" is "per-domain video"."""
    return protocol.replace("_", "-").replace("/", " ")


def spread(values: pd.Series, signed: bool = True, digits: int = 1) -> str:
    """Return a mean, and its standard deviation over replicates if there are several."""
    mean = number(values.mean(), signed, digits)
    return mean if len(values) < 2 else f"{mean} ± {values.std():.{digits}f}"


def number(value: float, signed: bool, digits: int = 1) -> str:
    """Return a rounded number; with a sign, minus as a minus, and zero as +0.0."""
    rounded = round(value, digits) + 0.0
    return f"{rounded:{'+' if signed else ''}.{digits}f}".replace("-", "−")


def best(cells: dict[str, tuple[str, float]]) -> dict[str, str]:
    """Make bold every text whose value, as rounded for showing, is the largest."""
    top = max((round(value, 1) for _, value in cells.values()), default=0.0)
    return {n: f"**{t}**" if round(v, 1) == top else t for n, (t, v) in cells.items()}


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with its first column to the left and the others to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _both(own: pd.DataFrame) -> str:
    if (own["label"] == "source").all():
        return spread(own["accuracy"], signed=False)
    return f"{own['accuracy'].mean():.1f} ({number(own['gain'].mean(), True)})"


def _averages(found: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the gain of each row averaged over the damaged streams, per replicate."""
    damaged = found[found["protocol"] != "clean"]
    return {
        str(name): own.groupby(REPLICATE)["gain"].mean()
        for name, own in damaged.groupby("label", sort=False)
    }


TABLES = {"accuracy": accuracy, "gains": gains, "main": main_table, "streams": streams}
