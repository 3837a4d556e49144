"""Make the tables of docs/results.md, docs/triage.md and README.md from the committed results.

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
STREAM, REPLICATE = ["data", "protocol", "samples", "batch_size"], ["model", "seed"]
OURS = ("dasp", "triage", "triage unfitted")
OWN = ("dasp", "triage")
ALLOWED = 0.3  # points that a method of ours may fall below Source
MAIN = {
    "interleaved": "one sensor damaged after another",
    "once": "the same, and no sample comes twice",
    "pairs": "two sensors damaged at once",
    "clean": "nothing damaged",
}
NOISES = {
    "real/grid/streams": "synthesised",
    "real/grid/recorded": "recorded",
    "real/grid/other_noise": "other recordings",
}
SITUATIONS = {  # kind of stream, batch size, plan
    "one sensor damaged after another (interleaved)": ("interleaved", 64, "streams"),
    "the same sensor damaged in many ways (continual)": ("continual", 64, "streams"),
    "the same, reset at each domain (per domain)": ("per_domain", 64, "streams"),
    "two sensors damaged at once (pairs)": ("pairs", 64, "streams"),
    "different damage side by side in each batch (mixed)": ("mixed", 64, "streams"),
    "one class after another (sorted)": ("sorted", 64, "streams"),
    "a sensor that is missing at times": ("missing", 64, "streams"),
    "interleaved, and no sample comes twice (once)": ("once", 64, "once"),
    "mixed, and no sample comes twice (once mixed)": ("once_mixed", 64, "once"),
    "batches of 16": ("interleaved", 16, "small"),
    "batches of 4": ("interleaved", 4, "small"),
    "nothing damaged (clean)": ("clean", 64, "streams"),
}


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
    """README's table: Source, the best rival, DASP and our own method on three data sets."""
    real, paper, own = what.split()
    rows = []
    for name, folders, plans in (
        ("GRID, spoken words", [real], ("real/grid/streams", "real/grid/once")),
        ("DSA, body-worn sensors", [real], ("real/dsa/streams", "real/dsa/once")),
        (
            "built-in shapes",
            [paper, own],
            ("paper/overview", "robust/paper", "robust/streams", "robust/once"),
        ),
    ):
        found = pd.concat([runs(folder) for folder in folders])
        found = found[found["plan"].isin(plans)]
        largest = found.groupby("protocol")["samples"].transform("max")
        found = found[found["samples"] == largest].drop_duplicates(["label", *STREAM, *REPLICATE])
        for kind, situation in MAIN.items():
            rows.append([f"{name}: {situation}", *_compared(_of_kind(found, kind))])
    header = ["accuracy (%), gain over Source", "source", "best rival", *OWN]
    return markdown(header, rows)


def _of_kind(found: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return the runs of one kind of stream, such as "pairs", whatever sensors it is about."""
    return found[found["protocol"].str.split("/").str[0] == kind]


def _compared(found: pd.DataFrame) -> list[str]:
    """Return cells of one stream: Source, the best rival by name, DASP and our own method."""
    mean = found.groupby("label", sort=False)[["accuracy", "gain"]].mean()
    rivals = mean[[name in dasp.METHODS for name in mean.index]]
    rivals = rivals.drop(index=["source", *OWN], errors="ignore")
    cells = {name: _cell("", mean.loc[name]) for name in OWN if name in mean.index}
    rival = rivals["accuracy"].idxmax()
    cells["best rival"] = _cell(f"{rival} ", rivals.loc[rival])
    shown = best(cells)
    source = f"{mean.loc['source', 'accuracy']:.1f}"
    return [source, *(shown.get(name, "–") for name in ("best rival", *OWN))]


def _cell(name: str, row: pd.Series) -> tuple[str, float]:
    return f"{name}{row['accuracy']:.1f} ({number(row['gain'], True)})", row["accuracy"]


def best_methods(what: str) -> str:
    """Table of situations: the methods that gain most on each data set, our own behind them."""
    folder, *prefixes = what.split()
    found = runs(folder)
    rows = []
    for situation, (kind, batch, plan) in SITUATIONS.items():
        row = [situation]
        for prefix in prefixes:
            of = found[(found["plan"] == f"{prefix}/{plan}") & (found["batch_size"] == batch)]
            row.append(_ranked(_of_kind(of, kind)))
        rows.append(row)
    return markdown(["stream", *(prefix.split("/")[1].upper() for prefix in prefixes)], rows)


def _ranked(found: pd.DataFrame) -> str:
    """Return Source's accuracy and the three rows that gain most, and our own if it is not one.

    Only methods as they are published or recommended, not rows with other options.
    """
    found = found[[name in dasp.METHODS or name in OURS for name in found["label"]]]
    gain = found.groupby("label")["gain"].mean()
    order = gain.drop(index="source").sort_values(ascending=False)
    places = {name: place for place, name in enumerate(order.index, 1)}
    told = [f"{name} {number(order[name], True)}" for name in order.index[:3]]
    told[0] = f"**{told[0]}**"
    told += [
        f"({places[name]}. {name} {number(order[name], True)})"
        for name in OWN
        if name in order.index and places[name] > 3
    ]
    source = found[found["label"] == "source"]["accuracy"].mean()
    return f"source {source:.1f}; {', '.join(told)}"


def board(what: str) -> str:
    """Table of all rows of a plan: average gain over its damaged streams, on clean, and worst."""
    found, protocols = chosen(what)
    damaged = [name for name in protocols if name != "clean"]
    rows = []
    for name, own in found.groupby("label"):
        if name == "source":
            continue
        average = own[own["protocol"].isin(damaged)].groupby(REPLICATE)["gain"].mean()
        by_stream = own.groupby("protocol")["gain"].mean()
        worst = f"{number(by_stream.min(), True)} ({words(by_stream.idxmin())})"
        cells = [name, spread(average), number(by_stream["clean"], True), worst]
        rows.append((average.mean(), cells))
    rows.sort(reverse=True)
    header = ["method", f"average gain, {len(damaged)} streams", "clean", "worst stream"]
    return markdown(header, [cells for _, cells in rows])


def noise(what: str) -> str:
    """Table of noises: accuracy of Source and gains on the noises that all of some plans have."""
    folder, *plans = what.split()
    frame = dasp.results(ROOT / folder)
    frame = frame[frame["plan"].isin(plans)]
    for column in ("protocol", "domain"):
        common = set.intersection(*(set(own[column]) for _, own in frame.groupby("plan")))
        frame = frame[frame[column].isin(common)]
    sums = frame.groupby(["label", "protocol", "plan", "model"], sort=False)[
        ["right", "seen"]
    ].sum()
    share = (100 * sums["right"] / sums["seen"]).groupby(level=[0, 1, 2], sort=False).mean()
    columns = [(p, plan) for p in share.index.unique("protocol") for plan in plans]
    labels = [n for n in share.index.unique("label") if all((n, *c) in share for c in columns)]
    source = {column: share["source", *column] for column in columns}
    rows = [["source", *(f"{source[column]:.1f}" for column in columns)]]
    cells = [
        best({n: _gain_cell(share[n, *c] - source[c]) for n in labels if n != "source"})
        for c in columns
    ]
    rows += [[n, *(cell[n] for cell in cells)] for n in labels if n != "source"]
    return markdown(["", *(f"{words(p)}: {NOISES[plan]}" for p, plan in columns)], rows)


def _gain_cell(gain: float) -> tuple[str, float]:
    return number(gain, True), gain


def streams(folder: str) -> str:
    """Table of all streams of `make robust`: Source, the best rival, DASP and our own method."""
    found = runs(folder)
    plans = [p for p in found["plan"].unique() if not p.startswith("robust/ablation")]
    found = found[found["plan"].isin(plans)].drop_duplicates(["label", *STREAM, *REPLICATE])
    counts = found.drop_duplicates(STREAM).groupby("protocol").size()
    rows = []
    for (_, protocol, samples, batch), own in found.groupby(STREAM, sort=False):
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


def harm(what: str) -> str:
    """Table of how often a row is below Source by more than is allowed, and where it is worst.

    Each case is a stream with one model, or the domains of one modality in it taken together.
    """
    folders, rows = what.split(), []
    frame = pd.concat([dasp.results(ROOT / folder) for folder in folders])
    frame["modality"] = frame["domain"].str.partition("/")[0]
    for label in OURS:
        cells = [label]
        for place in ([*STREAM, *REPLICATE], [*STREAM, *REPLICATE, "modality"]):
            own = frame[frame["label"].isin(["source", label])]
            own = own.drop_duplicates([*place, "label", "domain"])
            sums = own.groupby([*place, "label"])[["right", "seen"]].sum()
            share = (100 * sums["right"] / sums["seen"]).unstack("label").dropna()
            gain = (share[label] - share["source"]).sort_values()
            where = dict(zip(gain.index.names, gain.index[0], strict=True))
            part = f", {where['modality']}" if "modality" in where else ""
            worst = f"{words(where['protocol'])}, batches of {where['batch_size']}{part}"
            cells += [f"{(gain < -ALLOWED).sum()} of {len(gain)}"]
            cells += [f"{number(gain.iloc[0], True)} ({worst}, {where['model'].split()[0]})"]
        rows.append(cells)
    header = ["", "streams of one model", "worst", "modalities of one stream", "worst"]
    return markdown(header, rows)


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


TABLES = {
    "accuracy": accuracy,
    "best": best_methods,
    "board": board,
    "gains": gains,
    "harm": harm,
    "main": main_table,
    "noise": noise,
    "streams": streams,
}
