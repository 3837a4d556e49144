"""Which indicator sees which damage: print the tables of docs/diagnosis.md and docs/results.md.

    python studies/indicators/study.py                          # all plans, from results/, seconds
    python studies/indicators/study.py --plan flags --measure   # measure again, minutes
    python studies/indicators/study.py --plan indicators --measure --samples 64

Tables are printed, and written to out/studies/indicators as CSV and Markdown with one figure.
Measured anew, the measurements are written there too, in the form of results/.
"""

import argparse
import re
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import measure
import pandas as pd
import torch
from measure import ORDERS, POINTERS, THRESHOLDS

from dasp.bench.datasets import DataOptions
from dasp.bench.features import Features
from dasp.bench.references import find_model, model_name
from dasp.bench.store import Store
from dasp.data.loading import run_jobs

HERE = Path(__file__).resolve().parent
PLANS = {path.stem: path for path in sorted((HERE / "plans").glob("*.toml"))}
QUIET = 98.0  # per cent of batches that must stay without a false alarm
LIMITS = [str(threshold) for threshold in THRESHOLDS]
VIEW = ["model", "severity", "batch_size"]  # what is averaged over models at most
NAMES = {"entropy": "higher entropy", "confidence": "lower confidence"}
NAMES |= {form: f"higher redundancy ({form})" for form in ("released", "paper")}
TITLES = {"batch_size": "batch size"} | {
    f"{score} {unit}": f"{NAMES[score]} {unit}"
    for score in POINTERS
    for unit in ("domains", "batches", "domains std", "batches std")
}
Measured = dict[str, pd.DataFrame]


def measured(plan: dict[str, Any], store: Path) -> Measured:
    """Measure every model of a plan at every severity, each in a process of its own."""
    items = [(model, severity) for model in plan["models"] for severity in plan["severities"]]
    found: dict[str, list[dict[str, Any]]] = {}
    for part in run_jobs(partial(_one, plan, store), items):
        for name, rows in part.items():
            found.setdefault(name, []).extend(rows)
    return {name: pd.DataFrame(rows) for name, rows in found.items()}


def _one(plan: dict[str, Any], store: Path, item: tuple[str, int]) -> dict[str, measure.Rows]:
    torch.set_num_threads(1)
    model, severity = item
    data = {k: Path(v) if k == "root" else v for k, v in plan["data"].items()}
    features = Features(DataOptions(**data).open(), find_model(model), Store(store))
    what = measure.flags if plan["kind"] == "flags" else measure.sights
    parts = what(measure.Watch(features), severity, plan["batch_sizes"])
    name = {"model": model_name(model)}
    return {part: [name | row for row in rows] for part, rows in parts.items()}


def with_roles(sights: pd.DataFrame) -> pd.DataFrame:
    """Return one row per damaged domain: its role, and what each score points at.

    *dominant* is the modality that this model is right by most often, alone on clean data.
    """
    clean = sights[sights.damaged.isna()]
    best = clean.loc[clean.groupby(VIEW).right.idxmax()].set_index(VIEW).modality
    rows = []
    for key, own in sights[sights.damaged.notna()].groupby([*VIEW, "domain"], sort=False):
        damaged = own.damaged.iloc[0]
        mine = own[own.modality == damaged].iloc[0]
        role = "dominant" if damaged == best[key[:3]] else "other"
        row = dict(zip(VIEW, key[:3], strict=True)) | {"damaged": damaged, "role": role}
        row["batches"] = mine.batches
        for score, sign in POINTERS.items():
            others = own[own.modality != damaged][score]
            row[f"{score} domains"] = bool((sign * mine[score] > sign * others).all())
            row[f"{score} batches"] = mine[f"{score}_named"]
        rows.append(row)
    return pd.DataFrame(rows)


def naming(domains: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return in how many % of domains, and of batches, a score names the damaged modality."""
    groups = domains.groupby(list(dict.fromkeys([*by, *VIEW])), sort=False)
    totals = {"domains": groups.size(), "batches": groups.batches.sum()}
    columns = [f"{score} {unit}" for score in POINTERS for unit in totals]
    shares = {name: 100 * groups[name].sum() / totals[name.split()[1]] for name in columns}
    return flat(pd.DataFrame(shares).groupby(level=by, sort=False).agg(["mean", "std"]))


def flat(table: pd.DataFrame) -> pd.DataFrame:
    table.columns = [" ".join(column).removesuffix(" mean") for column in table.columns]
    return table.reset_index()


def usual(data: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the highest severity, in the batch size of most, or nearest to 64."""
    data = data[data.severity == data.severity.max()]
    counts = data.batch_size.value_counts()
    size = min(counts.index, key=lambda size: (-counts[size], abs(size - 64)))
    return data[data.batch_size == size]


def correlations(sights: pd.DataFrame) -> pd.DataFrame:
    """Return the rank correlation of each score with the accuracy of the modality alone."""
    shown = sights[sights.damaged.isna() | (sights.damaged == sights.modality)]
    parts = {name: shown[shown.modality == name] for name in shown.modality.unique()}
    rows = []
    for name, part in (parts | {"all": shown}).items():
        ranks = part.groupby("model")[[*POINTERS, "right"]].rank()
        each = ranks.groupby(part.model).corr()["right"].unstack()[list(POINTERS)]
        rows.append(each.agg(["mean", "std"]).unstack().rename(name))
    return flat(pd.DataFrame(rows).rename_axis("modality"))


def pointing_tables(data: Measured) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the tables of a plan of kind "indicators"."""
    sights, domains = data["sights"], with_roles(data["sights"])
    chosen = usual(domains)
    if domains.batch_size.nunique() > 1:
        by = ["batch_size"]
        yield "indicators-naming-by-batch-size", naming(domains.sort_values(by), by)
        damaged = sights[sights.damaged == sights.modality]
        parts = {"damaged": damaged, "clean": sights[sights.damaged.isna()]}
        levels = [
            part.groupby(["batch_size", "modality"])[["released", "paper"]].mean().assign(data=name)
            for name, part in parts.items()
        ]
        noise = data["noise"].groupby("batch_size")[["released", "paper"]].mean()
        levels.append(noise.assign(modality="any", data="noise").set_index("modality", append=True))
        yield "redundancy-by-batch-size", pd.concat(levels).reset_index()
        return
    parts = [chosen, chosen.assign(damaged=chosen.role), chosen.assign(damaged="any")]
    yield "indicators-naming-by-damaged", pd.concat([naming(part, ["damaged"]) for part in parts])
    yield "indicators-correlation", correlations(usual(sights))
    by = ["severity", "role"]
    yield "indicators-naming-by-severity", naming(domains.sort_values(by), by)


def rates(flags: pd.DataFrame) -> pd.DataFrame:
    """Return the % of batches flagged, by indicator and model (rows) and threshold (columns)."""
    sums = flags.groupby(["indicator", "model"], sort=False)[[*LIMITS, "batches"]].sum()
    return 100 * sums[LIMITS].div(sums.batches, axis=0)


def quiet(flags: pd.DataFrame, orders: list[str]) -> pd.DataFrame:
    """Tell which thresholds (columns) of an indicator (rows) give few false alarms in each order.

    Neither clean batches any flag, nor damaged ones a flag on a healthy modality.
    """
    means = []
    for order in orders:
        for what in ("clean", "healthy"):
            found = rates(flags[(flags.order == order) & (flags.what == what)])
            means.append(found.groupby(level="indicator", sort=False).mean())
    return 100 - pd.concat(means).groupby(level="indicator", sort=False).max() >= QUIET


def flag_table(flags: pd.DataFrame, shown: list[str], chosen: list[str]) -> pd.DataFrame:
    """Return the rates in the orders `shown`, each indicator at its lowest quiet threshold.

    Thresholds are chosen in the orders `chosen`; the highest one where none is quiet.
    """
    calm = quiet(flags, chosen)
    limits = {
        name: next((t for t in LIMITS if row[t]), LIMITS[-1]) for name, row in calm.iterrows()
    }
    still = quiet(flags, shown)
    flags = flags[flags.order.isin(shown)]
    damaged = flags[~flags.what.isin(["clean", "healthy"])]
    modality = damaged.what.str.partition("/")[0]
    severities = sorted(flags.severity.unique(), reverse=True)
    parts = {
        f"{name} {severity}": damaged[(modality == name) & (damaged.severity == severity)]
        for name in sorted(modality.unique())
        for severity in severities
    }
    parts |= {"all hits": damaged, "clean, no flag": flags[flags.what == "clean"]}
    parts |= {"wrong": flags[flags.what == "healthy"]}
    found = {title: rates(part) for title, part in parts.items()}
    rows = []
    for name, limit in limits.items():
        row = {"indicator": name, "threshold": float(limit), "quiet": int(still.loc[name, limit])}
        for title, table in found.items():
            each = table.loc[name, limit]
            each = 100 - each if title == "clean, no flag" else each
            row |= {title: each.mean(), f"{title} std": each.std()}
        rows.append(row)
    return pd.DataFrame(rows)


def flag_tables(data: Measured) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the tables of a plan of kind "flags": three per batch size."""
    for size in sorted(data["flags"].batch_size.unique(), reverse=True):
        mine = data["flags"][data["flags"].batch_size == size]
        yield f"flags-batch{size}-shuffled", flag_table(mine, ["shuffled"], ["shuffled"])
        yield f"flags-batch{size}-sorted", flag_table(mine, ["sorted"], ["shuffled"])
        yield f"flags-batch{size}-any", flag_table(mine, list(ORDERS), list(ORDERS))


def draw_hits(table: pd.DataFrame, path: Path) -> None:
    """Draw the hits of each indicator, by modality and severity."""
    from matplotlib.figure import Figure

    figure = Figure((7, 4.5), layout="constrained")
    axes = figure.subplots()
    columns = [name for name in table if re.fullmatch(r"\w+ \d", name)]
    for column, marker in zip(columns, "osD^vP<>X", strict=False):
        axes.plot(table[column], table.indicator, marker, label=column, alpha=0.8)
    axes.invert_yaxis()
    axes.set(xlabel="damaged batches flagged, %", title=path.stem)
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=6)
    figure.savefig(path)


def markdown(table: pd.DataFrame) -> str:
    rows = [["" if pd.isna(value) else str(value) for value in row] for row in table.to_numpy()]
    lines = [list(table), ["---"] * len(table.columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def report(name: str, data: Measured, out: Path) -> None:
    """Print and write the tables of one plan."""
    out.mkdir(parents=True, exist_ok=True)
    tables = flag_tables(data) if "flags" in data else pointing_tables(data)
    for stem, table in tables:
        table.columns = [TITLES.get(word, word) for word in table]
        table.to_csv(out / f"{stem}.csv", index=False)
        text = markdown(table.round(2))
        (out / f"{stem}.md").write_text(f"{text}\n")
        print(f"\n{name}: {stem}\n\n{text}")
        if stem.endswith("shuffled"):
            draw_hits(table, out / f"{stem}.svg")


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--plan", nargs="+", choices=list(PLANS), default=list(PLANS))
    parser.add_argument("--measure", action="store_true", help="measure, instead of results/")
    parser.add_argument("--samples", type=int, help="per domain; by default as in the plan")
    parser.add_argument("--out", type=Path, default=Path("out/studies/indicators"))
    options = parser.parse_args()
    for name in options.plan:
        plan = tomllib.loads(PLANS[name].read_text())
        if options.samples:
            plan["data"]["samples"] = options.samples
        if options.measure:
            data = measured(plan, Path("out/store"))
            (options.out / name).mkdir(parents=True, exist_ok=True)
            for part, table in data.items():
                table.to_csv(options.out / name / f"{part}.csv.gz", index=False)
        else:
            files = sorted((HERE / "results" / name).glob("*.csv.gz"))
            data = {path.name.partition(".")[0]: pd.read_csv(path) for path in files}
        report(name, data, options.out / name)


if __name__ == "__main__":
    main()
