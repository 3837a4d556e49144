"""The tables of a report.

To add one, write a function of a `RunGroup` (or of several, or of `Stream`s) that returns a
`Table`, and name it in `dasp.report.sections`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from dasp.bench.results import Result, RunConfig
from dasp.report.compare import (
    LEVEL,
    SOURCE,
    Comparison,
    PlanRun,
    RunGroup,
    Stream,
    best_label,
    compare,
    compare_with_source,
    over_source,
    pretty,
)
from dasp.report.formats import (
    NAN,
    Cell,
    Mean,
    Table,
    mark_best,
    mean_cell,
    mean_std,
    number,
    rounded,
    write_mean,
)
from dasp.report.frame import CLEAN, damaged, text

PAIRED = ("difference", "low", "high", "models ahead", "models")
INTERVAL = (
    f"[ ]: {LEVEL:.0%} bootstrap interval over samples, each drawn together with all its "
    "appearances in domains and before source models; it covers neither other source models (for "
    "these see ± and the count below) nor another order of the stream. ▲ better, ▼ worse: it "
    "excludes 0 and all source models agree. Not corrected for multiple comparisons."
)
HARM = 0.5  # points below Source; less may be chance
BELOW = f"▼ and red: more than {HARM} points below Source."
NEAR, FEW, BATCH = 0.2, 2.0, 64  # limits of the table of clean stretches


def file_name(protocol: str) -> str:
    """Return a protocol as part of a file name."""
    return protocol.replace("/", "-")


def comparison_cells(accuracy: pd.DataFrame, source: str | None) -> dict[str, Cell]:
    """Return one cell per label with accuracy and gain over Source, from (replicates, labels).

    Only labels with as many replicates as the fullest one can be the best.
    """
    gain, count = over_source(accuracy, source), accuracy.count()
    pairs = {label: (mean_std(accuracy[label]), mean_std(gain[label])) for label in accuracy}
    cells = [
        Cell(pair, ("accuracy", "gain"), worse=rounded(pair[1][0]) < 0) for pair in pairs.values()
    ]
    able = (count == count.max()) & (count > 0)
    return dict(zip(pairs, mark_best(cells, able.tolist()), strict=True))


def main_table(group: RunGroup) -> Table:
    """Return accuracy and gain over Source by method and protocol, and their average."""
    cells = {p: comparison_cells(group.accuracy(p), group.source) for p in group.columns}
    rows = []
    for label in group.labels:
        counts = sorted({len(group.of(label, protocol)) for protocol in group.protocols})
        runs = "–".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        each = {pretty(protocol): own[label] for protocol, own in cells.items()}
        rows.append({"method": label, **each, "n": runs})
    caption = f"Accuracy in %, and gain over Source in points ({group.title})"
    return Table("main", caption, rows)


def domain_table(group: RunGroup, protocol: str) -> Table:
    """Return the accuracy of each method in each domain of one protocol."""
    shares = group.by_domain(protocol)
    rows = []
    for domain in dict.fromkeys(shares.index.get_level_values("domain")):
        cells = comparison_cells(shares.loc[domain], group.source).items()
        first = {n: replace(c, means=c.means[:1], parts=("accuracy",)) for n, c in cells}
        rows.append({"domain": domain, **first})
    name = f"by-corruption-{file_name(protocol)}"
    return Table(name, f"Accuracy in % by domain, {pretty(protocol)} ({group.title})", rows)


def paired_table(group: RunGroup) -> Table:
    """Return the gain over Source on the same samples, with its interval."""
    found = {name: compare_with_source(group, name) for name in group.columns}
    labels = [label for label in group.labels if any(label in own for own in found.values())]
    return Table(
        "paired",
        "Gain over Source on the same samples, in points, mean ±standard deviation over runs "
        f"({group.title}). {INTERVAL}",
        [
            {"method": n, **{pretty(p): paired_cell(own.get(n)) for p, own in found.items()}}
            for n in labels
        ],
    )


def rivals_table(group: RunGroup) -> Table:
    """Return the best method, and DASP, against the best of the others, in each protocol."""
    rows = []
    for protocol in group.columns:
        accuracy = group.accuracy(protocol).drop(columns=[group.source], errors="ignore")
        for label in dict.fromkeys((best_label(accuracy), "dasp")):
            rival = best_label(accuracy.drop(columns=[label], errors="ignore"))
            result = compare(group, label, rival, protocol) if label and rival else None
            if result is not None:
                words = {"protocol": pretty(protocol), "method": label, "best rival": rival}
                rows.append({**words, "difference": paired_cell(result), "verdict": result.verdict})
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
    mean = (result.difference, result.spread)
    plain = (result.low, result.high, float(ahead), float(models))
    words = [write_mean(m, 2, "gain") for m in (mean, (result.low, NAN), (result.high, NAN))]
    mark = {"better": " ▲", "worse": " ▼"}.get(result.verdict, "")
    lines = f"{words[0]}{mark}\n[{words[1]}, {words[2]}]\n{ahead} of {models} models"
    means = (mean, *((value, NAN) for value in plain))
    best, worse = (result.verdict == word for word in ("better", "worse"))
    return Cell(means, PAIRED, 2, lines, best, worse)


def options_table(group: RunGroup) -> Table:
    """Return the options that each method ran with; several rows if protocols differ."""
    found: dict[tuple[str, str], list[str]] = {}
    for label in group.labels:
        for run in (run for protocol in group.protocols for run in group.of(label, protocol)):
            words = [f"{name} = {text(value)}" for name, value in run.config.options.items()]
            fit = run.config.source.get("samples")
            words += [f"fitted with {fit} clean samples"] if fit else []
            found.setdefault((label, ", ".join(words)), []).append(pretty(run.protocol))
    rows = [
        {"method": label, "options": words or "none", "protocols": ", ".join(dict.fromkeys(where))}
        for (label, words), where in found.items()
    ]
    return Table("options", "Options", rows)


def runs_table(group: RunGroup) -> Table:
    """Return the accuracy of every run: one row per method and replicate."""
    rows: dict[tuple[str, tuple[str, str, int]], dict[str, str | Cell]] = {}
    empty = {pretty(protocol): number(NAN) for protocol in group.protocols}
    for run in sorted(group.runs, key=lambda run: (group.labels.index(run.label), run.replicate)):
        first = {"method": run.label, "model and seed": run.replicate_name, **empty}
        row = rows.setdefault((run.label, run.replicate), first)
        row[pretty(run.protocol)] = number(run.accuracy, 2, run=run.key)
    return Table("runs", f"Accuracy in % of every run ({group.title})", list(rows.values()))


def forgetting(group: RunGroup, protocol: str) -> pd.DataFrame:
    """Return the points lost on clean data, ((label, view, run), places), without Source.

    The places are before the first domain and after each; a view is "joint" or one modality.
    """
    found = {}
    for label in (label for label in group.labels if label != group.source):
        for run in group.of(label, protocol):
            clean = dict(run.counts.clean_after or {})
            seen = clean.pop("seen", 0)
            for view in sorted(clean, key=lambda view: (view != "joint", view)):
                right = np.array(clean[view])
                found[label, view_title(view), run.key] = 100 * (right[0] - right) / seen
    names = ["label", "view", "run"]
    index = pd.MultiIndex.from_tuples(found, names=names) if found else None
    return pd.DataFrame(list(found.values()), index=index)


def view_title(view: str) -> str:
    """Return what clean data were evaluated with."""
    return "all together" if view == "joint" else f"{view} alone"


def forgetting_table(group: RunGroup) -> Table:
    """Return the loss on clean data at the end and at the worst point of each stream."""
    rows = []
    for protocol in group.protocols:
        lost = forgetting(group, protocol)
        if lost.empty:
            continue
        ends = pd.DataFrame({"end": lost.iloc[:, -1], "worst": lost.max(axis=1)})
        cells: dict[str, dict[str, Cell]] = {}
        for view, mine in ends.groupby(level="view", sort=False):
            each = {
                n: tuple(map(mean_std, (own["end"], own["worst"])))
                for n, own in mine.groupby(level="label", sort=False)
            }
            marked = mark_best(
                [Cell(means, ("end", "worst")) for means in each.values()], least=True
            )
            for label, cell in zip(each, marked, strict=True):
                cells.setdefault(label, {})[view] = cell
        rows += [{"method": n, "protocol": pretty(protocol), **own} for n, own in cells.items()]
    return Table(
        "forgetting",
        "Forgetting: points of accuracy on clean data lost at the end of the stream, and below it "
        f"at the worst point ({group.title})",
        rows,
    )


def sensitivity(group: RunGroup) -> pd.DataFrame:
    """Return the runs of rows with a varied option, the row's own among them.

    Columns: method, option, value, protocol, accuracy, key. A plan's `vary` labels its rows
    "<row> <option>=<value>".
    """
    records = []
    for label in group.labels:
        base, _, setting = label.rpartition(" ")
        option = setting.partition("=")[0]
        for protocol in group.protocols:
            runs, own = group.of(label, protocol), group.of(base, protocol)
            value = runs[0].config.options.get(option) if runs and own else None
            if isinstance(value, int | float) and not isinstance(value, bool):
                for run in (*runs, *own):
                    value = float(run.config.options[option])
                    records.append((base, option, value, protocol, run.accuracy, run.key))
    columns = ["method", "option", "value", "protocol", "accuracy", "key"]
    return pd.DataFrame(records, columns=columns).drop_duplicates(["method", "option", "key"])


def sensitivity_table(group: RunGroup) -> Table:
    """Return the accuracy of every value of every varied option, and that of Source."""
    found, rows = sensitivity(group), []
    for (base, option), own in found.groupby(["method", "option"], sort=False):
        for value, here in own.groupby("value"):
            words = {"method": base, "option": option, "value": f"{value:g}"}
            rows.append(words | _by_protocol(group, here))
    if rows:
        mine = [(r.protocol, r.accuracy) for r in group.runs if r.label == group.source]
        source = pd.DataFrame(mine, columns=["protocol", "accuracy"])
        rows.append({"method": SOURCE, "option": "", "value": ""} | _by_protocol(group, source))
    caption = "Accuracy in % as one option varies, all others as in the method's own row"
    return Table("sensitivity", caption, rows)


def _by_protocol(group: RunGroup, runs: pd.DataFrame) -> dict[str, Cell]:
    return {
        pretty(name): mean_cell(runs["accuracy"][runs["protocol"] == name])
        for name in group.protocols
    }


def batch_sizes(groups: Sequence[RunGroup]) -> pd.DataFrame:
    """Return the runs of labels with several batch sizes: protocol, method, size, accuracy."""
    records = [
        (protocol, label, run.config.batch_size, run.accuracy)
        for group in groups
        for protocol in group.protocols
        for label in group.labels
        for run in group.of(label, protocol)
    ]
    found = pd.DataFrame(records, columns=["protocol", "method", "size", "accuracy"])
    return found[found.groupby(["protocol", "method"])["size"].transform("nunique") > 1]


def batch_size_table(groups: Sequence[RunGroup]) -> Table:
    """Return the accuracy of each method by batch size."""
    found = batch_sizes(groups)
    sizes = sorted(set(found["size"]))
    rows = []
    for (protocol, label), own in found.groupby(["protocol", "method"], sort=False):
        cells = {f"batch {size}": mean_cell(own["accuracy"][own["size"] == size]) for size in sizes}
        rows.append({"method": label, "protocol": pretty(protocol), **cells})
    return Table("batch-size", "Accuracy in % by batch size", rows)


def robustness_tables(streams: Sequence[Stream]) -> list[Table]:
    """Return the averages and floors of each method, and its gain on every stream."""
    streams = [stream for stream in streams if stream.group.source is not None]
    names = [stream.name for stream in streams]
    each = [s.group.gain(s.protocol).dropna(axis=1, how="all") for s in streams]
    labels = dict.fromkeys(label for s in streams for label in s.group.labels)
    gains = pd.concat(dict(zip(names, each, strict=True))) if each else pd.DataFrame()
    gains = gains[[label for label in labels if label in gains]]  # ((stream, replicate), labels)
    if gains.empty:
        return []
    grouped = gains.groupby(level=0)
    mean, std, count = (f.reindex(names) for f in (grouped.mean(), grouped.std(), grouped.count()))

    def cell(gain: Mean) -> Cell:
        return Cell((gain,), ("gain",), worse=gain[0] < -HARM)

    voting = [s.name for s in streams if s.protocol != CLEAN] or names
    averages = mark_best([cell(_average(gains[label].unstack(level=0)[voting])) for label in mean])
    worst = mean.idxmin()
    floors = mark_best([cell((mean[n][worst[n]], std[n][worst[n]])) for n in mean])
    rows = []
    for label, average, floor in zip(mean, averages, floors, strict=True):
        runs = [run for s in streams for run in s.group.of(label, s.protocol)]
        harm = int((mean[label] < -HARM).sum())
        of = number(harm, 0, text=f"{harm} of {mean[label].count()}")
        back = number(sum(len(run.counts.rollbacks) for run in runs), 0)
        first = {"method": label, "average": average, "floor": floor, "worst on": worst[label]}
        rows.append({**first, "harm on": of, "rolled back": back})
    by_stream = []
    for stream in streams:
        here = stream.name
        able = [True, *(count.loc[here] == count.loc[here].max())]
        cells = [cell(pair) for pair in zip(mean.loc[here], std.loc[here], strict=True)]
        zero, *cells = mark_best([number(0.0), *cells], able)  # Source is best if all others lose
        source = mean_std(stream.group.accuracy(stream.protocol)[stream.group.source])
        first = {"stream": here, "source": replace(zero, means=(source,))}
        by_stream.append(first | dict(zip(mean, cells, strict=True)))
    for name, cells in (("average", averages), ("floor", floors)) if len(streams) > 1 else ():
        first = {"stream": name, "source": number(NAN)}
        by_stream.append(first | dict(zip(mean, cells, strict=True)))
    titles = {stream.group.title for stream in streams}
    setting = f" ({titles.pop()})" if len(titles) == 1 else ""
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


def _average(gains: pd.DataFrame) -> Mean:
    """Return mean and deviation of gains, (replicates, streams), with one vote per stream.

    NaN if a stream was not run; the deviation is that of the replicates' own averages, NaN if not
    every replicate ran all streams.
    """
    own = gains.dropna(how="all").mean(axis=1, skipna=False)
    spread = float(own.std()) if own.notna().all() else NAN
    return float(gains.mean().mean(skipna=False)), spread


def stretches_table(streams: Sequence[Stream]) -> Table:
    """Return the accuracy on clean visits beside that of Source, and clean batches flagged."""
    rows = []
    for stream in streams:
        group, source = stream.group, stream.group.source
        runs = [run for run in group.runs if run.protocol == stream.protocol]
        if not any(d.name == CLEAN and d.batches for run in runs for d in run.counts.domains):
            continue
        accuracy = group.by_domain(stream.protocol).loc[CLEAN]
        gaps = over_source(accuracy, source)
        for label in (label for label in accuracy if label != source):
            gap = mean_cell(gaps[label], 2, "difference")
            batches = group.diagnosed(label, stream.protocol)
            clean = batches[batches["damage"] == ""]
            share = _share(clean["named"])
            many = share >= FEW and group.runs[0].config.batch_size == BATCH
            rows.append(
                {
                    "stream": stream.name,
                    "method": label,
                    "on clean visits": mean_cell(accuracy[label], 2),
                    "against Source": replace(gap, worse=gap.means[0][0] < -NEAR),
                    "clean": number(len(clean) or NAN, 0),
                    "flagged": number(share, worse=many),
                }
            )
    return Table(
        "stretches",
        "Clean visits of each stream: accuracy in %, difference to Source on the same visits in "
        "points (paired by model and seed), clean batches of all runs, and the percentage of them "
        f"in which a modality was flagged. ▼ and red: more than {NEAR} points below Source; "
        f"{FEW:g} % or more flagged in batches of {BATCH}.",
        rows,
    )


def _share(flags: pd.Series) -> float:
    return 100 * float(flags.sum()) / len(flags) if len(flags) else NAN


def diagnosis_table(group: RunGroup) -> Table:
    """Return how often a diagnosis names the damaged modality, over batches of all replicates."""
    names = {damaged(domain.name) for run in group.runs for domain in run.counts.domains}
    rows = []
    for label in group.labels:
        for protocol in group.protocols:
            batches = group.diagnosed(label, protocol)
            if batches.empty:
                continue
            bad, clean = (batches[batches["damage"].ne("") == w] for w in (True, False))
            right = bad["exact"]
            each = {n: right[bad["damage"] == n] for n in sorted(names - {""})}
            rows.append(
                {
                    "method": label,
                    "protocol": pretty(protocol),
                    "damaged": number(len(bad), 0),
                    "right": number(_share(right)),
                    "wrong": number(_share(bad["named"] & ~right)),
                    "nothing": number(_share(~bad["named"])),
                    **{f"{n} right": number(_share(own)) for n, own in each.items()},
                    "clean": number(len(clean), 0),
                    "clean flagged": number(_share(clean["named"])),
                }
            )
    return Table(
        "diagnosis",
        "Diagnosis: numbers of damaged and clean batches, shares in %; wrong: another set than "
        f"exactly the damaged modalities was named ({group.title})",
        rows,
    )


def diagnosis_by_stream_table(streams: Sequence[Stream]) -> Table:
    """Return hits, false alarms and clean batches left alone: one row per stream and method."""
    rows = []
    for stream in streams:
        for label in stream.group.labels:
            batches = stream.group.diagnosed(label, stream.protocol)
            if batches.empty:
                continue
            bad, clean = (batches[batches["damage"].ne("") == w] for w in (True, False))
            rows.append(
                {
                    "stream": stream.name,
                    "method": label,
                    "damaged": number(len(bad), 0),
                    "hit": number(_share(bad["hit"])),
                    "healthy flagged": number(_share(bad["alarm"][bad["healthy"]])),
                    "clean": number(len(clean), 0),
                    "left alone": number(_share(~clean["named"])),
                }
            )
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
    """Return speed with and without loading, time beside Source, memory and parameters."""
    rows = []
    for label, result in costs:
        measured, memory = result.measured, result.measured["memory"]
        rounds, source = pd.DataFrame(measured["rounds"]), pd.DataFrame(measured["source"])
        samples, ratio = measured["samples"], rounds / source.where(source > 0)
        rows.append(
            {
                "method": label,
                "model": result.run.model["name"],
                "accuracy, %": number(matching_accuracy(label, result, runs)),
                "samples/s": mean_cell(samples / rounds["adapt"], 0),
                "with loading": mean_cell(samples / (rounds["adapt"] + rounds["load"]), 0),
                "× Source": mean_cell(ratio["adapt"], 2),
                "× Source, processor": mean_cell(ratio["processor"], 2),
                "MiB above start": number(memory["over_mib"]),
                "MiB in all": number(memory["peak_mib"], 0),
                "trained": number(measured["trainable"], 0),
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


def matching_accuracy(label: str, cost: Result, runs: Sequence[PlanRun]) -> float:
    """Return the accuracy of the runs that a cost belongs to; NaN if there are none.

    These have the same label, method, model and stream; of several sizes, the largest count.
    """

    def place(config: RunConfig) -> tuple[object, ...]:
        digest = config.model["digest"]
        return config.method, config.protocol, config.severity, config.batch_size, digest

    mine = [run for run in runs if run.label == label and place(run.config) == place(cost.run)]
    most = max((run.counts.seen for run in mine), default=0)
    return mean_std(run.accuracy for run in mine if run.counts.seen == most)[0]


def passes_table(costs: Sequence[tuple[str, Result]]) -> Table:
    """Return the passes per sample through each part of the model."""
    kinds = ("forward", "forward with gradient", "backward")
    counts: list[dict[tuple[bool, int, str], Counter[str]]] = []
    for _, result in costs:
        counts.append({})
        for entry in result.measured["passes"]:
            names, fusion = entry["modalities"], not entry["call"].startswith("encode")
            own = counts[-1].setdefault((fusion, -len(names), " + ".join(names)), Counter())
            own[kinds[bool(entry["gradient"])]] += entry["forward"]
            own["backward"] += entry["backward"]
    rows = []
    for (label, result), found in zip(costs, counts, strict=True):
        row: dict[str, str | Cell] = {"method": label, "model": result.run.model["name"]}
        for part in sorted({part for each in counts for part in each}):
            own, samples = found.get(part, Counter()), result.measured["samples"]
            means = tuple((own[kind] / samples if own else NAN, NAN) for kind in kinds)
            row[f"{'fusion' if part[0] else 'encoder'} {part[2]}"] = Cell(means, kinds, 2)
        rows.append(row)
    return Table(
        "passes",
        "Passes per sample through each part of the model: forward without gradient, below it "
        "forward with gradient, and backward; a sample with some tokens left out counts as one",
        rows,
    )
