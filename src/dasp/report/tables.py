"""The tables of a report.

To add one, write a function of a `RunGroup` (or of several, or of `Stream`s) that returns a
`Table`, and name it in `dasp.report.sections`.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

import pandas as pd

from dasp.bench.results import DomainCount, Result, RunConfig
from dasp.report.compare import (
    LEVEL,
    SOURCE,
    Comparison,
    PlanRun,
    RunGroup,
    Stream,
    adapting_scores,
    average_gain,
    best_label,
    compare,
    compare_with_source,
    over_source,
    pretty,
)
from dasp.report.formats import (
    NAN,
    NONE,
    UNKNOWN,
    Cell,
    Column,
    Table,
    mark_best,
    mean_cell,
    mean_std,
    number,
    numbers,
    rounded,
    texts,
)
from dasp.report.frame import CLEAN, absent, damaged, text

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
ENOUGH = 90.0  # % of small batches diagnosed as in the large one
REORDERED = ("dirichlet",)  # the order of samples depends on the batch size
VERDICTS = ("right", "wrong", "nothing")


def file_name(protocol: str) -> str:
    """Return a protocol as part of a file name."""
    return protocol.replace("/", "-")


def comparison_cells(accuracy: pd.DataFrame, source: str | None) -> dict[str, Cell]:
    """Return one cell per label with accuracy and gain over Source, from (replicates, labels).

    Only labels with as many replicates as the fullest one can be the best.
    """
    gain, count = over_source(accuracy, source), accuracy.count()
    pairs = {label: (mean_std(accuracy[label]), mean_std(gain[label])) for label in accuracy}
    cells = [Cell(means=pair, worse=rounded(pair[1][0]) < 0) for pair in pairs.values()]
    able = (count == count.max()) & (count > 0)
    return dict(zip(pairs, mark_best(cells, able.tolist()), strict=True))


def main_table(group: RunGroup) -> Table:
    """Return accuracy and gain over Source by method and protocol, and their average."""
    cells = {p: comparison_cells(group.accuracy(p), group.source) for p in group.columns}
    rows = []
    for label in group.labels:
        counts = [len(group.of(label, protocol)) for protocol in group.protocols]
        few, many = min(counts), max(counts)
        runs = Cell(str(many) if few == many else f"{few}–{many}")
        rows.append([Cell(label), *(own[label] for own in cells.values()), runs])
    columns = [Column(pretty(name), ("accuracy", "gain")) for name in cells]
    caption = f"Accuracy in %, and gain over Source in points ({group.title})"
    return Table("main", caption, [Column("method"), *columns, Column("n")], rows)


def domain_table(group: RunGroup, protocol: str) -> Table:
    """Return the accuracy of each method in each domain of one protocol."""
    shares = group.by_domain(protocol)
    rows = []
    for domain in dict.fromkeys(shares.index.get_level_values("domain")):
        cells = comparison_cells(shares.loc[domain], group.source).values()
        rows.append([Cell(domain), *(replace(cell, means=cell.means[:1]) for cell in cells)])
    name = f"by-corruption-{file_name(protocol)}"
    caption = f"Accuracy in % by domain, {pretty(protocol)} ({group.title})"
    return Table(name, caption, [*texts("domain"), *numbers(*shares.columns)], rows)


def paired_table(group: RunGroup) -> Table:
    """Return the gain over Source on the same samples, with its interval."""
    found = {name: compare_with_source(group, name) for name in group.columns}
    labels = [label for label in group.labels if any(label in own for own in found.values())]
    return Table(
        "paired",
        "Gain over Source on the same samples, in points, mean ±standard deviation over runs "
        f"({group.title}). {INTERVAL}",
        [Column("method"), *(Column(pretty(name), PAIRED, 2) for name in found)],
        [[Cell(n), *(paired_cell(own.get(n)) for own in found.values())] for n in labels],
    )


def rivals_table(group: RunGroup) -> Table:
    """Return the best method, and DASP, against the best of the others, in each protocol."""
    rows = []
    for protocol in group.columns:
        found = adapting_scores(group, protocol)
        for label in dict.fromkeys((best_label(found), "dasp")):
            rival = best_label({name: own for name, own in found.items() if name != label})
            if label is None or label not in found or rival is None:
                continue
            result = compare(found[label], found[rival], f"{label} and {rival}, {protocol}")
            if result is not None:
                words = map(Cell, (pretty(protocol), label, rival))
                rows.append([*words, paired_cell(result), Cell(result.verdict)])
    columns = texts("protocol", "method", "best rival")
    return Table(
        "rivals",
        f"Difference to the best rival on the same samples, in points ({group.title}). The rival "
        "is the best of the others as measured here, which favours it; the best method of all is "
        f"favoured likewise, while dasp has a row in any case. {INTERVAL}",
        [*columns, Column("difference", PAIRED, 2), Column("verdict")],
        rows,
    )


def paired_cell(result: Comparison | None) -> Cell:
    """Return a comparison in three lines, and as numbers."""
    if result is None:
        return Cell(NONE, (UNKNOWN,) * len(PAIRED))
    models = len(result.by_model)
    plain = (result.low, result.high, result.ahead, models)
    means = ((result.difference, result.spread), *((float(value), NAN) for value in plain))
    mean, low, high = (Column("", digits=2).write("gain", own) for own in means[:3])
    mark = {"better": " ▲", "worse": " ▼"}.get(result.verdict, "")
    lines = f"{mean}{mark}\n[{low}, {high}]\n{result.ahead} of {models} models"
    return Cell(lines, means, result.verdict == "better", result.verdict == "worse")


def options_table(group: RunGroup) -> Table:
    """Return the options that each method ran with; several rows if protocols differ."""
    rows: dict[tuple[str, str], list[str]] = {}
    for label in group.labels:
        for run in (run for protocol in group.protocols for run in group.of(label, protocol)):
            words = [f"{name} = {text(value)}" for name, value in run.config.options.items()]
            fit = run.config.source.get("samples")
            words += [f"fitted with {fit} clean samples"] if fit else []
            rows.setdefault((label, ", ".join(words)), []).append(pretty(run.protocol))
    cells = [
        [Cell(label), Cell(words or "none"), Cell(", ".join(dict.fromkeys(where)))]
        for (label, words), where in rows.items()
    ]
    return Table("options", "Options", texts("method", "options", "protocols"), cells)


def runs_table(group: RunGroup) -> Table:
    """Return the accuracy of every run: one row per method and replicate."""
    names = {run.replicate: run.replicate_name for run in group.runs}
    rows = []
    for label in group.labels:
        found = {(r.replicate, p): r for p in group.protocols for r in group.of(label, p)}
        for replicate in sorted({replicate for replicate, _ in found}):
            mine = [found.get((replicate, protocol)) for protocol in group.protocols]
            cells = [replace(number(r.accuracy), run=r.key) if r else number(None) for r in mine]
            rows.append([Cell(label), Cell(names[replicate]), *cells])
    protocols = numbers(*map(pretty, group.protocols), digits=2)
    caption = f"Accuracy in % of every run ({group.title})"
    return Table("runs", caption, [*texts("method", "model and seed"), *protocols], rows)


def cost_table(group: RunGroup) -> Table:
    """Return time per batch, its ratio to Source in the same cell, and updates of each method."""

    def seconds(run: PlanRun) -> float:
        spent = run.result.measured.get("seconds", {})
        # The passes of encoders that are tuned are timed separately.
        whole = spent.get("adapt", NAN) + spent.get("encode", 0.0)
        return float(whole) / len(run.counts.batches.right)

    mine = [run for run in group.runs if run.label == group.source]
    base = {(run.protocol, run.replicate): seconds(run) or NAN for run in mine}
    rows = []
    for label in group.labels:
        runs = [run for run in group.runs if run.label == label]
        means = (
            mean_std(1000 * seconds(run) for run in runs),
            mean_std(seconds(r) / base.get((r.protocol, r.replicate), NAN) for r in runs),
            mean_std(r.result.measured.get("samples_per_second", NAN) for r in runs),
            mean_std(100 * r.counts.updates / len(r.counts.batches.right) for r in runs),
            (float(sum(run.counts.rejections for run in runs)), NAN),
        )
        rows.append([Cell(label), *map(mean_cell, means)])
    titles = {"ms a batch": 1, "× Source": 2, "samples/s": 0, "% updated": 1, "rejected": 0}
    return Table(
        "cost",
        "Time of the runs, several at once and on features encoded before: not a measurement of a "
        f"method's cost, which the plan paper/efficiency makes. Mean over all runs ({group.title})",
        [Column("method"), *(Column(t, ("value",), digits) for t, digits in titles.items())],
        rows,
    )


def forgetting(group: RunGroup, protocol: str) -> dict[str, dict[str, pd.DataFrame]]:
    """Return the points lost on clean data, {label: {view: (places, replicates)}}, without Source.

    The places are before the first domain and after each; a view is "joint" or one modality.
    """
    found: dict[str, dict[str, pd.DataFrame]] = {}
    for label in (label for label in group.labels if label != group.source):
        clean = [run.counts.clean_after for run in group.of(label, protocol)]
        for own in filter(None, clean):
            for view in sorted(own.keys() - {"seen"}, key=lambda view: (view != "joint", view)):
                lost = 100 * (own[view][0] - pd.Series(own[view])) / own["seen"]
                views = found.setdefault(label, {})
                views[view] = pd.concat([views.get(view), lost], axis=1)
    return found


def forgetting_table(group: RunGroup) -> Table:
    """Return the loss on clean data at the end and at the worst point of each stream."""
    rows = []
    views: list[str] = []
    for protocol in group.protocols:
        found = forgetting(group, protocol)
        views = views or [view_title(view) for own in list(found.values())[:1] for view in own]
        losses = [list(own.values()) for own in found.values()]  # one frame per label and view
        columns = [
            mark_best([_end_and_worst(lost) for lost in each], least=True)
            for each in zip(*losses, strict=True)
        ]
        for label, *cells in zip(found, *columns, strict=True):
            rows.append([Cell(label), Cell(pretty(protocol)), *cells])
    return Table(
        "forgetting",
        "Forgetting: points of accuracy on clean data lost at the end of the stream, and below it "
        f"at the worst point ({group.title})",
        [*texts("method", "protocol"), *(Column(view, ("end", "worst")) for view in views)],
        rows,
    )


def _end_and_worst(lost: pd.DataFrame) -> Cell:
    return Cell(means=(mean_std(lost.iloc[-1]), mean_std(lost.max())))


def view_title(view: str) -> str:
    """Return what clean data were evaluated with."""
    return "all together" if view == "joint" else f"{view} alone"


Curve = dict[float, list[float]]
"""Accuracies of the replicates by the value of what was varied."""


def sensitivity(group: RunGroup, protocol: str) -> dict[str, dict[str, Curve]]:
    """Return the curves by row and varied option; the row's own value is among the values.

    A plan's `vary` labels its rows "<row> <option>=<value>".
    """
    found: dict[str, dict[str, Curve]] = {}
    for label in group.labels:
        base, _, setting = label.rpartition(" ")
        option = setting.partition("=")[0]
        runs, own = group.of(label, protocol), group.of(base, protocol)
        value = runs[0].config.options.get(option) if runs else None
        if own and isinstance(value, int | float) and not isinstance(value, bool):
            curve = found.setdefault(base, {}).setdefault(option, {})
            curve.setdefault(float(value), []).extend(run.accuracy for run in runs)
            usual = float(own[0].config.options[option])
            curve.setdefault(usual, [run.accuracy for run in own])
    return found


def sensitivity_table(group: RunGroup) -> Table:
    """Return the accuracy of every value of every varied option, and that of Source."""
    found = {protocol: sensitivity(group, protocol) for protocol in group.protocols}
    places = dict.fromkeys(
        (base, option, value)
        for by_base in found.values()
        for base, curves in by_base.items()
        for option, curve in curves.items()
        for value in sorted(curve)
    )
    rows = []
    for base, option, value in places:
        each = [own.get(base, {}).get(option, {}).get(value, []) for own in found.values()]
        words = map(Cell, (base, option, f"{value:g}"))
        rows.append([*words, *(mean_cell(mean_std(values)) for values in each)])
    sources = [mean_std(r.accuracy for r in group.of(group.source, p)) for p in group.protocols]
    rows += [[Cell(SOURCE), Cell(), Cell(), *map(mean_cell, sources)]] if rows else []
    columns = [*texts("method", "option", "value"), *numbers(*map(pretty, group.protocols))]
    caption = "Accuracy in % as one option varies, all others as in the method's own row"
    return Table("sensitivity", caption, columns, rows)


def batch_sizes(groups: Sequence[RunGroup], protocol: str) -> dict[str, Curve]:
    """Return the curves of the labels that were run with several batch sizes."""
    found: dict[str, Curve] = {}
    for group in groups:
        for run in (run for label in group.labels for run in group.of(label, protocol)):
            curve = found.setdefault(run.label, {})
            curve.setdefault(run.config.batch_size, []).append(run.accuracy)
    return {label: curve for label, curve in found.items() if len(curve) > 1}


def batch_size_table(groups: Sequence[RunGroup]) -> Table:
    """Return the accuracy of each method by batch size."""
    sizes = sorted({group.runs[0].config.batch_size for group in groups})
    rows = []
    for protocol in dict.fromkeys(p for group in groups for p in group.protocols):
        for label, curve in batch_sizes(groups, protocol).items():
            cells = [mean_cell(mean_std(curve.get(size, []))) for size in sizes]
            rows.append([Cell(label), Cell(pretty(protocol)), *cells])
    columns = [*texts("method", "protocol"), *numbers(*(f"batch {size}" for size in sizes))]
    return Table("batch-size", "Accuracy in % by batch size", columns, rows)


def stream_gains(streams: Sequence[Stream]) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return mean, deviation and number of gains over Source, (streams, labels) each.

    Labels without any gain are left out.
    """
    gains = pd.concat({s.name: s.gain.dropna(axis=1, how="all") for s in streams}, sort=False)
    order = [n for n in dict.fromkeys(n for s in streams for n in s.group.labels) if n in gains]
    grouped, names = gains[order].groupby(level=0), [stream.name for stream in streams]
    frames = grouped.mean(), grouped.std(), grouped.count()
    return frames[0].reindex(names), frames[1].reindex(names), frames[2].reindex(names)


def robustness_tables(streams: Sequence[Stream]) -> list[Table]:
    """Return the averages and floors of each method, and its gain on every stream."""
    streams = [stream for stream in streams if stream.group.source is not None]
    if not any(stream.gain.notna().any(axis=None) for stream in streams):
        return []
    mean, std, count = stream_gains(streams)

    def cell(value: float, spread: float) -> Cell:
        return mean_cell((float(value), float(spread)), worse=float(value) < -HARM)

    averages = mark_best([cell(*average_gain(streams, label)) for label in mean])
    worst = mean.idxmin()
    floors = mark_best([cell(mean[n][worst[n]], std[n][worst[n]]) for n in mean])
    rows = []
    for label, average, floor in zip(mean, averages, floors, strict=True):
        runs = [run for s in streams for run in s.group.of(label, s.protocol)]
        harm = int((mean[label] < -HARM).sum())
        of = number(harm, f"{harm} of {mean[label].count()}")
        back = number(sum(len(run.counts.rollbacks) for run in runs))
        rows.append([Cell(label), average, floor, Cell(worst[label]), of, back])
    by_stream = []
    for stream in streams:
        here = stream.name
        zero = number(0.0)  # Source itself, the best if all others lose
        able = [True, *(count.loc[here] == count.loc[here].max())]
        cells = [cell(*pair) for pair in zip(mean.loc[here], std.loc[here], strict=True)]
        first, *cells = mark_best([zero, *cells], able)
        source = mean_std(stream.group.accuracy(stream.protocol)[stream.group.source])
        by_stream.append([Cell(here), replace(first, means=(source,)), *cells])
    if len(streams) > 1:
        by_stream.append([Cell("average"), number(None), *averages])
        by_stream.append([Cell("floor"), number(None), *floors])
    titles = {stream.group.title for stream in streams}
    setting = f" ({titles.pop()})" if len(titles) == 1 else ""
    return [
        Table(
            "floors",
            "Gain over Source in points: average over the streams with the same weight each "
            "(clean ones left out; –: not run on all), and floor, the worst of all "
            f"{len(streams)}. {BELOW} Rolled back: the number of times, in all runs, that a "
            "method returned to earlier weights.",
            [
                *texts("method"),
                *numbers("average", "floor", part="gain"),
                *texts("worst on"),
                *numbers("harm on", "rolled back", digits=0),
            ],
            rows,
        ),
        Table(
            "robustness",
            f"Accuracy of Source in %, and gain over it in points, by stream{setting}; mean "
            "±standard deviation over source models and seeds. Bold: the best of a row. " + BELOW,
            [*texts("stream"), *numbers("source"), *numbers(*mean, part="gain")],
            by_stream,
        ),
    ]


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
            gap = mean_std(gaps[label])
            counts = diagnosis_counts(group.of(label, stream.protocol))
            clean = sum(counts["", word] for word in VERDICTS)
            share = _share(clean - counts["", "nothing"], clean)
            many = share >= FEW and group.runs[0].config.batch_size == BATCH
            cells = [mean_cell(mean_std(accuracy[label])), mean_cell(gap, worse=gap[0] < -NEAR)]
            cells += [number(clean or None), number(share, worse=many)]
            rows.append([Cell(stream.name), Cell(label), *cells])
    return Table(
        "stretches",
        "Clean visits of each stream: accuracy in %, difference to Source on the same visits in "
        "points (paired by model and seed), clean batches of all runs, and the percentage of them "
        f"in which a modality was flagged. ▼ and red: more than {NEAR} points below Source; "
        f"{FEW:g} % or more flagged in batches of {BATCH}.",
        [
            *texts("stream", "method"),
            *numbers("on clean visits", digits=2),
            *numbers("against Source", part="difference", digits=2),
            *numbers("clean", digits=0),
            *numbers("flagged"),
        ],
        rows,
    )


def verdict(named: Sequence[str], damage: str) -> str:
    """Judge one diagnosis: "right" if exactly the damaged modalities were named."""
    if not named:
        return "nothing"
    return "right" if damage and set(named) == set(damage.split("+")) else "wrong"


def diagnosis_counts(runs: Iterable[PlanRun]) -> Counter[tuple[str, str]]:
    """Count batches by (damaged modalities, verdict)."""
    counts: Counter[tuple[str, str]] = Counter()
    for run in runs:
        for domain, named in run.diagnosed():
            damage = damaged(domain.name)
            counts[damage, verdict(named, damage)] += 1
    return counts


def _share(part: int, whole: int) -> float:
    return 100 * part / whole if whole else NAN


def diagnosis_table(group: RunGroup) -> Table:
    """Return how often a diagnosis names the damaged modality, over batches of all replicates."""
    names = {damaged(domain.name) for run in group.runs for domain in run.counts.domains}
    damages = sorted(names - {""})
    rows = []
    for label in group.labels:
        for protocol in group.protocols:
            counts = diagnosis_counts(group.of(label, protocol))
            if not counts:
                continue
            total = {n: sum(counts[n, word] for word in VERDICTS) for n in [*damages, ""]}
            whole = sum(total[name] for name in damages)
            each = [_share(sum(counts[n, w] for n in damages), whole) for w in VERDICTS]
            each += [_share(counts[name, "right"], total[name]) for name in damages]
            flagged = _share(total[""] - counts["", "nothing"], total[""])
            values = [whole, *each, total[""], flagged]
            rows.append([Cell(label), Cell(pretty(protocol)), *map(number, values)])
    return Table(
        "diagnosis",
        "Diagnosis: numbers of damaged and clean batches, shares in %; wrong: another set than "
        f"exactly the damaged modalities was named ({group.title})",
        [
            *texts("method", "protocol"),
            *numbers("damaged", digits=0),
            *numbers(*VERDICTS, *(f"{name} right" for name in damages)),
            *numbers("clean", digits=0),
            *numbers("clean flagged"),
        ],
        rows,
    )


def diagnosis_by_stream_table(streams: Sequence[Stream]) -> Table:
    """Return hits, false alarms and clean batches left alone: one row per stream and method."""
    rows = []
    for stream in streams:
        for label in stream.group.labels:
            counts: Counter[str] = Counter()
            for run in stream.group.of(label, stream.protocol):
                known = set(run.counts.batches.scores or ())
                for domain, named in run.diagnosed():
                    bad = set(filter(None, damaged(domain.name).split("+")))
                    well = known - bad - absent(domain.name)
                    kind = "damaged" if bad else "clean"
                    counts[kind] += 1
                    counts[f"{kind} hit"] += bad <= set(named) if bad else not named
                    counts["both"] += bool(bad and well)
                    counts["false"] += bool(bad and well & set(named))
            if counts:
                hit, quiet = (_share(counts[f"{n} hit"], counts[n]) for n in ("damaged", "clean"))
                false = _share(counts["false"], counts["both"])
                values = (counts["damaged"], hit, false, counts["clean"], quiet)
                rows.append([Cell(stream.name), Cell(label), *map(number, values)])
    return Table(
        "diagnosis-by-stream",
        "Diagnosis by stream, over batches of all runs, shares in %. Hit: all damaged modalities "
        "were flagged, of the damaged batches. Healthy flagged: of the damaged batches that also "
        "have an undamaged modality (–: there are none). Left alone: nothing was flagged, of the "
        "clean batches. A missing modality counts as neither damaged nor healthy, a constant one "
        "as damaged; batches of several domains are left out.",
        [
            *texts("stream", "method"),
            *numbers("damaged", digits=0),
            *numbers("hit", "healthy flagged"),
            *numbers("clean", digits=0),
            *numbers("left alone"),
        ],
        rows,
    )


def diagnosis_by_size_table(groups: Sequence[RunGroup]) -> Table:
    """Return how often the diagnosis is right by batch size, of what was run with 64."""
    found: dict[tuple[str, str], dict[int, list[PlanRun]]] = {}
    for run in (run for group in groups for run in group.runs):
        if run.counts.batches.biased is not None and run.protocol not in REORDERED:
            row = found.setdefault((run.label, run.protocol), {})
            row.setdefault(run.config.batch_size, []).append(run)
    found = {row: sizes for row, sizes in found.items() if BATCH in sizes and min(sizes) < BATCH}
    sizes = sorted({size for by_size in found.values() for size in by_size if size <= BATCH})
    rows = []
    for (label, protocol), by_size in found.items():
        cells = []
        for size in sizes:
            runs = by_size.get(size, [])
            flags = [flag for r in runs for d in r.counts.domains for flag in _judged(r, d)[1]]
            right = _share(sum(flags), len(flags))
            kept = NAN if size == BATCH else _share(*_kept(runs, by_size[BATCH]))
            cells.append(Cell(means=((right, NAN), (kept, NAN)), worse=kept < ENOUGH))
        rows.append([Cell(label), Cell(pretty(protocol)), *cells])
    parts = ("right", f"right where {BATCH} is")
    return Table(
        "diagnosis-by-batch-size",
        "Diagnosis by batch size, over batches of all runs, in %. Above: batches in which exactly "
        "what is damaged was flagged (on clean data: nothing). Below: the same share of only the "
        f"small batches whose samples lie in a batch of {BATCH} that the same method diagnosed "
        "correctly, with the same model and seed; samples come in the same order at every batch "
        f"size, so these are the same samples. ▼ and red: below {ENOUGH:g} %.",
        [*texts("method", "protocol"), *(Column(f"batch {size}", parts) for size in sizes)],
        rows,
    )


def _judged(run: PlanRun, domain: DomainCount) -> tuple[list[int], list[bool]]:
    """Return the first sample of each batch of a domain, and whether its diagnosis is right."""
    here = slice(domain.first_batch, domain.first_batch + domain.batches)
    starts = [0, *accumulate(run.counts.batches.seen[here])][:-1]
    damage = damaged(domain.name)
    wanted = "right" if damage else "nothing"
    return starts, [verdict(n, damage) == wanted for n in (run.counts.batches.biased or [])[here]]


def _kept(small: Iterable[PlanRun], large: Iterable[PlanRun]) -> tuple[int, int]:
    """Count the small batches that are right, of those inside a large batch that is right."""

    def stream(run: PlanRun) -> str:
        domains = [(domain.name, domain.seen) for domain in run.counts.domains]
        return text([run.replicate, run.config.data, run.config.severity, domains])

    others = {stream(run): run for run in large}
    right = total = 0
    for run in (run for run in small if stream(run) in others):
        other = others[stream(run)]
        for mine, theirs in zip(run.counts.domains, other.counts.domains, strict=True):
            starts, good = _judged(other, theirs)
            for start, own in zip(*_judged(run, mine), strict=True):
                if good[bisect_right(starts, start) - 1]:
                    right, total = right + own, total + 1
    return right, total


def efficiency_table(costs: Sequence[tuple[str, Result]], runs: Sequence[PlanRun]) -> Table:
    """Return speed with and without loading, time beside Source, memory and parameters."""
    rows = []
    for label, result in costs:
        measured, memory = result.measured, result.measured["memory"]
        rounds, source = pd.DataFrame(measured["rounds"]), pd.DataFrame(measured["source"])
        ratio = (rounds / source.where(source > 0)).apply(mean_std)
        means = (
            (matching_accuracy(label, result, runs), NAN),
            mean_std(measured["samples"] / rounds["adapt"]),
            mean_std(measured["samples"] / (rounds["adapt"] + rounds["load"])),
            tuple(ratio["adapt"]),
            tuple(ratio["processor"]),
        )
        share = 100 * measured["trainable"] / measured["total"]
        plain = (memory["over_mib"], memory["peak_mib"], measured["trainable"], share)
        cells = [*map(mean_cell, means), *map(number, plain)]
        rows.append([Cell(label), Cell(result.run.model["name"]), *cells])
    first = costs[0][1].measured
    threads = sorted({result.run.cost["threads"] for _, result in costs})
    return Table(
        "efficiency",
        "Cost from raw inputs to logits, each method in a process of its own, threads: "
        f"{' or '.join(map(str, threads))}; mean ±standard deviation over {len(first['rounds'])} "
        f"rounds of {first['samples']} samples; × Source: time divided by that of Source in the "
        f"round before. Loading: {first.get('loading', 'unknown')}",
        [
            *texts("method", "model"),
            *numbers("accuracy, %"),
            *numbers("samples/s", "with loading", digits=0),
            *numbers("× Source", "× Source, processor", digits=2),
            *numbers("MiB above start"),
            *numbers("MiB in all", "trained", digits=0),
            *numbers("% trained", digits=2),
        ],
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
    parts = sorted({part for found in counts for part in found})
    rows = []
    for (label, result), found in zip(costs, counts, strict=True):
        cells = []
        for part in parts:
            own, samples = found.get(part, Counter()), result.measured["samples"]
            means = [own[kind] / samples if own else NAN for kind in kinds]
            cells.append(Cell(means=tuple((mean, NAN) for mean in means)))
        rows.append([Cell(label), Cell(result.run.model["name"]), *cells])
    titles = [f"{'fusion' if fusion else 'encoder'} {names}" for fusion, _, names in parts]
    return Table(
        "passes",
        "Passes per sample through each part of the model: forward without gradient, below it "
        "forward with gradient, and backward; a sample with some tokens left out counts as one",
        [*texts("method", "model"), *(Column(title, kinds, 2) for title in titles)],
        rows,
    )
