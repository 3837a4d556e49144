"""The tables of a report.

To add one, write a function of a `RunGroup` (or of several) that returns a `Table`, and name it in
`dasp.report.sections`. A stream is a `RunGroup` with one protocol.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from dasp.bench.results import Result, RunConfig
from dasp.report.compare import SOURCE, Comparison, PlanRun, RunGroup, compare, over_source, pretty
from dasp.report.formats import NAN, Cell, Table, mark_best, mean_cell, mean_std, number, write_mean
from dasp.report.frame import CLEAN, damaged, slug, text

BOTH, ENDS = ("accuracy", "gain"), ("end", "worst")
PAIRED = ("difference", "low", "high", "models ahead", "models")
INTERVAL = (
    "[ ]: 95% bootstrap interval over samples, each drawn together with all its "
    "appearances in domains and before source models; it covers neither other source models (for "
    'these see ± and the count below) nor another order of the stream. "better" and "worse": it '
    "excludes 0 and all source models agree. Not corrected for multiple comparisons."
)
VARIED = ["method", "protocol", "option", "value", "accuracy", "key"]
HARM = 0.5  # points below Source; less may be chance
BELOW = f"▼ and red: more than {HARM} points below Source."
NEAR, FEW, BATCH = 0.2, 2.0, 64  # limits of the table of clean stretches


def comparison_cells(accuracy: pd.DataFrame, source: str | None) -> dict[str, Cell]:
    """Return one cell per label with accuracy and gain over Source, from (replicates, labels)."""
    gain = over_source(accuracy, source)
    cells = {}
    for label in accuracy:
        means = mean_std(accuracy[label]), mean_std(gain[label])
        cells[label] = Cell(means, BOTH, worse=round(means[1][0], 1) < 0)
    return mark_best(cells, _fullest(accuracy))


def _fullest(accuracy: pd.DataFrame) -> list[str]:
    """Return the labels with the most replicates; only these can be the best."""
    count = accuracy.count()
    return [label for label in accuracy if count[label] == count.max() > 0]


def main_table(group: RunGroup) -> Table:
    """Return accuracy and gain over Source by method and protocol, and their average."""
    cells = {p: comparison_cells(group.accuracy(p), group.source) for p in group.columns}
    rows = []
    for label in group.labels:
        counts = [len(group.of(label, protocol)) for protocol in group.protocols]
        runs = "–".join(dict.fromkeys((str(min(counts)), str(max(counts)))))
        each = {pretty(protocol): own[label] for protocol, own in cells.items()}
        rows.append({"method": label, **each, "n": runs})
    return Table("main", f"Accuracy in %, and gain over Source in points ({group.title})", rows)


def domain_table(group: RunGroup, protocol: str) -> Table:
    """Return the accuracy of each method in each domain of one protocol."""
    shares = group.by_domain(protocol)
    rows = []
    for domain in dict.fromkeys(shares.index.get_level_values("domain")):
        cells = comparison_cells(shares.loc[domain], group.source).items()
        first = {n: replace(c, means=c.means[:1], parts=("accuracy",)) for n, c in cells}
        rows.append({"domain": domain, **first})
    name = slug(f"by-corruption-{protocol}")
    return Table(name, f"Accuracy in % by domain, {pretty(protocol)} ({group.title})", rows)


def paired_table(group: RunGroup) -> Table:
    """Return the gain over Source on the same samples, with its interval."""
    rows = []
    for label in (n for n in group.labels if group.source and n != group.source):
        found = {p: compare(group, label, str(group.source), p) for p in group.columns}
        if any(found.values()):
            cells = {pretty(protocol): paired_cell(result) for protocol, result in found.items()}
            rows.append({"method": label, **cells})
    return Table(
        "paired",
        "Gain over Source on the same samples, in points, mean ±standard deviation over runs "
        f"({group.title}). {INTERVAL}",
        rows,
    )


def rivals_table(group: RunGroup) -> Table:
    """Return the best method, and DASP, against the best of the others, in each protocol."""

    def best(accuracy: pd.DataFrame) -> str:
        return str(accuracy[_fullest(accuracy)].mean().idxmax())

    rows = []
    for protocol in group.columns:
        accuracy = group.accuracy(protocol).dropna(axis=1, how="all")
        accuracy = accuracy.drop(columns=[group.source], errors="ignore")
        if len(accuracy.columns) < 2:
            continue
        for label in dict.fromkeys((best(accuracy), "dasp")):
            rival = best(accuracy.drop(columns=[label], errors="ignore"))
            if result := compare(group, label, rival, protocol):
                row = {"protocol": pretty(protocol), "method": label, "best rival": rival}
                rows.append({**row, "difference": paired_cell(result), "verdict": result.verdict})
    return Table(
        "rivals",
        f"Difference to the best rival on the same samples, in points ({group.title}). The rival "
        "is the best of the others as measured here, which favours it; the best method of all is "
        f"favoured likewise, while dasp has a row in any case. {INTERVAL}",
        rows,
    )


def paired_cell(result: Comparison | None) -> Cell:
    """Return a comparison in three lines, and as numbers."""
    if result is None:
        return Cell(((NAN, NAN),) * len(PAIRED), PAIRED)
    models, ahead = len(result.by_model), sum(value > 0 for value in result.by_model.values())
    mean, low, high = (result.difference, result.spread), (result.low, NAN), (result.high, NAN)
    words = [write_mean(own, 2, "gain") for own in (mean, low, high)]
    mark = f" {result.verdict}" if result.verdict in ("better", "worse") else ""
    lines = f"{words[0]}{mark}\n[{words[1]}, {words[2]}]\n{ahead} of {models} models"
    means = (mean, low, high, (float(ahead), NAN), (float(models), NAN))
    best, worse = (result.verdict == word for word in ("better", "worse"))
    return Cell(means, PAIRED, 2, lines, best, worse)


def options_table(group: RunGroup) -> Table:
    """Return the options that each method ran with; several rows if protocols differ."""
    found: dict[tuple[str, str], list[str]] = {}
    for run in group.runs:
        words = [f"{name} = {text(value)}" for name, value in run.config.options.items()]
        fit = run.config.source.get("samples")
        words += [f"fitted with {fit} clean samples"] if fit else []
        found.setdefault((run.label, ", ".join(words)), []).append(pretty(run.protocol))
    rows = [
        {"method": label, "options": words or "none", "protocols": ", ".join(dict.fromkeys(where))}
        for (label, words), where in found.items()
    ]
    return Table("options", "Options", rows)


def runs_table(group: RunGroup) -> Table:
    """Return the accuracy of every run: one row per method and replicate."""
    rows: dict[tuple[object, ...], dict[str, Any]] = {}
    empty = {pretty(protocol): NAN for protocol in group.protocols}
    for run in sorted(group.runs, key=lambda run: (group.labels.index(run.label), run.replicate)):
        first = {"method": run.label, "model and seed": run.replicate_name, **empty}
        row = rows.setdefault((run.label, run.replicate), first)
        row[pretty(run.protocol)] = number(run.accuracy, 2, run=run.key)
    return Table("runs", f"Accuracy in % of every run ({group.title})", list(rows.values()))


def forgetting_table(group: RunGroup) -> Table:
    """Return the points lost on clean data, with all modalities and each alone, in each stream."""
    records = []
    for run in (run for run in group.runs if run.label != group.source):
        clean = dict(run.counts.clean_after or {})
        seen = clean.pop("seen", 0)
        for view in sorted(clean, key=lambda view: (view != "joint", view)):
            title = "all together" if view == "joint" else f"{view} alone"
            points = [100 * (clean[view][0] - right) / seen for right in clean[view]]
            records.append((run.protocol, title, run.label, points[-1], max(points)))
    lost = pd.DataFrame(records, columns=["protocol", "view", "label", *ENDS])
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for (protocol, title), here in lost.groupby(["protocol", "view"], sort=False):
        means = {
            n: (mean_std(own["end"]), mean_std(own["worst"]))
            for n, own in here.groupby("label", sort=False)
        }
        cells = mark_best({n: Cell(own, ENDS) for n, own in means.items()}, least=True)
        for label, cell in cells.items():
            first = {"method": label, "protocol": pretty(protocol)}
            rows.setdefault((protocol, label), first)[title] = cell
    return Table(
        "forgetting",
        "Forgetting: points of accuracy on clean data lost at the end of the stream, and below it "
        f"at the worst point ({group.title})",
        list(rows.values()),
    )


def sensitivity(group: RunGroup) -> pd.DataFrame:
    """Return the runs of rows with a varied option, the row's own among them.

    Columns: method, protocol, option, value, accuracy, key. A plan's `vary` labels its rows
    "<row> <option>=<value>".
    """
    records = []
    for run in group.runs:
        base, _, setting = run.label.rpartition(" ")
        option, own = setting.partition("=")[0], group.of(base, run.protocol)
        if own and type(run.config.options.get(option)) in (int, float):
            for each in (run, *own):
                place = base, run.protocol, option, float(each.config.options[option])
                records.append((*place, each.accuracy, each.key))
    return pd.DataFrame(records, columns=VARIED).drop_duplicates(["method", "option", "key"])


def sensitivity_table(group: RunGroup) -> Table:
    """Return the accuracy of every value of every varied option, and that of Source."""
    rows = []
    names = {protocol: pretty(protocol) for protocol in group.protocols}
    for (base, option), own in sensitivity(group).groupby(["method", "option"], sort=False):
        for value, here in own.groupby("value"):
            words = {"method": base, "option": option, "value": f"{value:g}"}
            rows.append(words | _means(here, "protocol", names))
    if rows:
        source = {n: mean_cell(r.accuracy for r in group.of(group.source, n)) for n in names}
        own = {names[protocol]: cell for protocol, cell in source.items()}
        rows.append({"method": SOURCE, "option": "", "value": "", **own})
    caption = "Accuracy in % as one option varies, all others as in the method's own row"
    return Table("sensitivity", caption, rows)


def _means(runs: pd.DataFrame, by: str, names: Mapping[Any, str]) -> dict[str, Cell]:
    return {name: mean_cell(runs["accuracy"][runs[by] == own]) for own, name in names.items()}


def batch_sizes(groups: Sequence[RunGroup]) -> pd.DataFrame:
    """Return the runs of labels with several batch sizes, in the columns of `sensitivity`."""
    records = [
        (r.label, r.protocol, "samples per batch", r.config.batch_size, r.accuracy, r.key)
        for group in groups
        for r in group.runs
    ]
    found = pd.DataFrame(records, columns=VARIED)
    return found[found.groupby(["protocol", "method"])["value"].transform("nunique") > 1]


def batch_size_table(groups: Sequence[RunGroup]) -> Table:
    """Return the accuracy of each method by batch size."""
    found = batch_sizes(groups)
    names = {size: f"batch {size}" for size in sorted(set(found["value"]))}
    rows = [
        {"method": label, "protocol": pretty(protocol), **_means(own, "value", names)}
        for (protocol, label), own in found.groupby(["protocol", "method"], sort=False)
    ]
    return Table("batch-size", "Accuracy in % by batch size", rows)


def robustness_tables(streams: Sequence[RunGroup]) -> list[Table]:
    """Return the averages and floors of each method, and its gain on every stream."""
    streams = [stream for stream in streams if stream.source is not None]
    found = {stream.name: stream.gain(stream.protocols[0]) for stream in streams}
    gains = pd.concat(found) if found else pd.DataFrame()  # ((stream, replicate), labels)
    gains = gains.dropna(axis=1, how="all")
    if gains.empty:
        return []
    by_name = gains.groupby(level=0, sort=False)
    mean, std, count = by_name.mean(), by_name.std(), by_name.count()

    def cell(gain: float, spread: float) -> Cell:
        return Cell(((float(gain), float(spread)),), ("gain",), worse=gain < -HARM)

    def average(label: str) -> Cell:
        """One vote per stream: NaN if one was not run, no deviation if a replicate lacks one."""
        own = gains[label].unstack(level=0)[voting].dropna(how="all").mean(axis=1, skipna=False)
        return cell(mean[label][voting].mean(skipna=False), own.std(skipna=False))

    voting = [stream.name for stream in streams if stream.shifted] or list(found)
    averages = mark_best({label: average(label) for label in mean})
    worst, ran = mean.idxmin(), mean.count()
    floors = mark_best({n: cell(mean[n][worst[n]], std[n][worst[n]]) for n in mean})
    rows = []
    for label in mean:
        runs = [run for stream in streams for run in stream.runs if run.label == label]
        harm = int((mean[label] < -HARM).sum())
        row = {"method": label, "average": averages[label], "floor": floors[label]}
        row |= {"worst on": worst[label], "harm on": number(harm, text=f"{harm} of {ran[label]}")}
        rows.append({**row, "rolled back": sum(len(run.counts.rollbacks) for run in runs)})
    by_stream = []
    for stream in streams:
        here = stream.name
        able = [SOURCE, *count.columns[count.loc[here] == count.loc[here].max()]]
        own = {n: cell(mean[n][here], std[n][here]) for n in mean}
        own = mark_best({SOURCE: number(0.0), **own}, able)  # Source is best if all others lose
        accuracy = mean_std(stream.accuracy(stream.protocols[0])[stream.source])
        own[SOURCE] = replace(own[SOURCE], means=(accuracy,))
        by_stream.append({"stream": here, **own})
    if len(streams) > 1:
        ends = {"average": averages, "floor": floors}
        by_stream += [{"stream": name, SOURCE: NAN, **own} for name, own in ends.items()]
    titles = {f" ({stream.title})" for stream in streams}
    setting = titles.pop() if len(titles) == 1 else ""
    return [
        Table(
            "floors",
            "Gain over Source in points: average over the streams with the same weight each "
            "(clean ones left out; –: not run on all), and floor, the worst of all "
            f"{len(streams)}. {BELOW} Rolled back: the number of times, in all runs, that a "
            "method returned to earlier weights.",
            rows,
        ),
        Table(
            "robustness",
            f"Accuracy of Source in %, and gain over it in points, by stream{setting}; mean "
            "±standard deviation over source models and seeds. Bold: the best of a row. " + BELOW,
            by_stream,
        ),
    ]


def stretches_table(streams: Sequence[RunGroup]) -> Table:
    """Return the accuracy on clean visits beside that of Source, and clean batches flagged."""
    rows = []
    for stream in streams:
        domains = [domain for run in stream.runs for domain in run.counts.domains]
        if not any(domain.name == CLEAN and domain.batches for domain in domains):
            continue
        accuracy = stream.by_domain(stream.protocols[0]).loc[CLEAN]
        batches = {label: clean["named"] for label, _, _, clean in stream.diagnosed()}
        for label in (label for label in accuracy if label != stream.source):
            gap = mean_cell(over_source(accuracy, stream.source)[label], 2, "difference")
            named = batches.get(label, pd.Series(dtype=bool))
            share = 100 * named.mean()
            many = share >= FEW and stream.runs[0].config.batch_size == BATCH
            row = {"stream": stream.name, "method": label}
            row |= {"on clean visits": mean_cell(accuracy[label], 2)}
            row |= {"against Source": replace(gap, worse=gap.means[0][0] < -NEAR)}
            rows.append({**row, "clean": len(named) or NAN, "flagged": number(share, worse=many)})
    return Table(
        "stretches",
        "Clean visits of each stream: accuracy in %, difference to Source on the same visits in "
        "points (paired by model and seed), clean batches of all runs, and the percentage of them "
        f"in which a modality was flagged. ▼ and red: more than {NEAR} points below Source; "
        f"{FEW:g} % or more flagged in batches of {BATCH}.",
        rows,
    )


def diagnosis_table(group: RunGroup) -> Table:
    """Return how often a diagnosis names the damaged modality, over batches of all replicates."""
    domains = [domain.name for run in group.runs for domain in run.counts.domains]
    damages = sorted(set(map(damaged, domains)) - {""})
    rows = []
    for label, protocol, bad, clean in group.diagnosed():
        right, named = bad["exact"], bad["named"]
        row = {"method": label, "protocol": pretty(protocol), "damaged": len(bad)}
        row |= {"right": 100 * right.mean(), "wrong": 100 * (named & ~right).mean()}
        row |= {"nothing": 100 * (~named).mean()}
        row |= {f"{n} right": 100 * right[bad["damage"] == n].mean() for n in damages}
        rows.append({**row, "clean": len(clean), "clean flagged": 100 * clean["named"].mean()})
    return Table(
        "diagnosis",
        "Diagnosis: numbers of damaged and clean batches, shares in %; wrong: another set than "
        f"exactly the damaged modalities was named ({group.title})",
        rows,
    )


def diagnosis_by_stream_table(streams: Sequence[RunGroup]) -> Table:
    """Return hits, false alarms and clean batches left alone: one row per stream and method."""
    rows = []
    for stream in streams:
        for label, _, bad, clean in stream.diagnosed():
            row = {"stream": stream.name, "method": label, "damaged": len(bad)}
            row |= {"hit": 100 * bad["hit"].mean()}
            row |= {"healthy flagged": 100 * bad["alarm"][bad["healthy"]].mean()}
            rows.append({**row, "clean": len(clean), "left alone": 100 * (~clean["named"]).mean()})
    return Table(
        "diagnosis-by-stream",
        "Diagnosis by stream, over batches of all runs, shares in %. Hit: all damaged modalities "
        "were flagged, of the damaged batches. Healthy flagged: of the damaged batches that also "
        "have an undamaged modality (–: there are none). Left alone: nothing was flagged, of the "
        "clean batches. A missing modality counts as neither damaged nor healthy, a constant one "
        "as damaged; batches of several domains are left out.",
        rows,
    )


def efficiency_table(costs: Sequence[tuple[str, Result]], runs: Sequence[PlanRun]) -> Table:
    """Return speed with and without loading, time beside Source, memory and parameters.

    The accuracy is that of the `runs` of the same label, method, model and stream; of several
    sizes, the largest count.
    """

    def place(label: str, run: RunConfig) -> tuple[object, ...]:
        return label, run.method, run.protocol, run.severity, run.batch_size, run.model["digest"]

    rows = []
    for label, result in costs:
        measured, memory = result.measured, result.measured["memory"]
        rounds, source = pd.DataFrame(measured["rounds"]), pd.DataFrame(measured["source"])
        samples, ratio = measured["samples"], rounds / source.where(source > 0)
        mine = [run for run in runs if place(run.label, run.config) == place(label, result.run)]
        most = max((run.counts.seen for run in mine), default=0)
        accuracy = mean_std(run.accuracy for run in mine if run.counts.seen == most)[0]
        rows.append(
            {
                "method": label,
                "model": result.run.model["name"],
                "accuracy, %": accuracy,
                "samples/s": mean_cell(samples / rounds["adapt"], 0),
                "with loading": mean_cell(samples / (rounds["adapt"] + rounds["load"]), 0),
                "× Source": mean_cell(ratio["adapt"], 2),
                "× Source, processor": mean_cell(ratio["processor"], 2),
                "MiB above start": float(memory["over_mib"]),
                "MiB in all": number(memory["peak_mib"], 0),
                "trained": int(measured["trainable"]),
                "% trained": number(100 * measured["trainable"] / measured["total"], 2),
            }
        )
    first = costs[0][1].measured
    threads = sorted({result.run.cost["threads"] for _, result in costs})
    return Table(
        "efficiency",
        "Cost from raw inputs to logits, each method in a process of its own, threads: "
        f"{' or '.join(map(str, threads))}; mean ±standard deviation over {len(first['rounds'])} "
        f"rounds of {first['samples']} samples; × Source: time divided by that of Source in the "
        f"round before. Loading: {first.get('loading', 'unknown')}",
        rows,
    )


def passes_table(costs: Sequence[tuple[str, Result]]) -> Table:
    """Return the passes per sample through each part of the model."""
    kinds = ("forward", "forward with gradient", "backward")
    counts: dict[tuple[bool, int, str], Counter[tuple[int, str]]] = {}
    for place, (_, result) in enumerate(costs):
        for entry in result.measured["passes"]:
            names, fusion = entry["modalities"], not entry["call"].startswith("encode")
            own = counts.setdefault((fusion, -len(names), " + ".join(names)), Counter())
            own[place, kinds[bool(entry["gradient"])]] += entry["forward"]
            own[place, "backward"] += entry["backward"]
    rows = []
    for place, (label, result) in enumerate(costs):
        row: dict[str, str | Cell] = {"method": label, "model": result.run.model["name"]}
        for (fusion, _, names), own in sorted(counts.items()):
            each = [own[place, kind] / result.measured["samples"] for kind in kinds]
            means = tuple((value if (place, "backward") in own else NAN, NAN) for value in each)
            row[f"{'fusion' if fusion else 'encoder'} {names}"] = Cell(means, kinds, 2)
        if any("needs" in other.measured for _, other in costs):  # older results have none
            row["needs"] = ", ".join(result.measured.get("needs", ()))
        rows.append(row)
    return Table(
        "passes",
        "Passes per sample through each part of the model: forward without gradient, below it "
        "forward with gradient, and backward; a sample with some tokens left out counts as one",
        rows,
    )
