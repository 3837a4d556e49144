"""The figures of a report, drawn by matplotlib: SVG for the page, PDF and PNG for papers.

A label keeps its colour, dash and marker in all figures of a report, so that colour is never all
that tells two lines apart. In the page the colours become CSS variables, which have one value for
light and one for dark; a saved SVG file carries these variables with it.
"""

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from dasp.bench.results import Result
from dasp.core.files import atomic_path
from dasp.report.compare import AVERAGE, SOURCE, PlanRun, RunGroup, pretty
from dasp.report.formats import Column, mean_std, rounded
from dasp.report.frame import damaged, short_name
from dasp.report.tables import (
    batch_sizes,
    file_name,
    forgetting,
    matching_accuracy,
    sensitivity,
    view_title,
)

STYLE = Path(__file__).with_name("dasp.mplstyle")
INK = ("#1b1f24", "#e6e9ee")
PALETTE = (  # light, dark; legible with all common kinds of colour blindness beside dash and marker
    ("#5f6672", "#a3abb8"),
    ("#c74a00", "#ff8a3d"),
    ("#1f4fa3", "#7ea6ff"),
    ("#00805d", "#2fc79b"),
    ("#a87400", "#e6a817"),
    ("#b0538a", "#e59ac6"),
    ("#2b87bd", "#6cc0f0"),
    ("#7d5c36", "#c9a57a"),
    ("#6a4aa0", "#b79df0"),
    ("#4b7a12", "#a0cf5e"),
    ("#8a1c3b", "#f07a98"),
    ("#0b7285", "#66d9e8"),
)
MARKERS = ("o", "D", "s", "^", "v", "P", "X", "<", ">", "p", "h")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1.5, 1.5)), (0, (1, 1)))
SLANTED: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
NAMES = 32  # domains that are named on an axis
PANELS = 8  # protocols side by side; of more, only the average is drawn


@dataclass(frozen=True)
class Chart:
    """A figure with its caption; `name` is that of its files."""

    name: str
    caption: str
    figure: Figure

    @cached_property
    def svg(self) -> str:
        """Return the figure for the page: its colours are variables, its size that of the page."""
        text = self._save("svg", metadata={"Date": None}, transparent=True).decode()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r' id="\w+_\d+"', "", text)
        text = re.sub(r"\d+\.\d{2,}", _shorter, text)
        text = re.sub(r"\s*\n\s*", "\n", text)
        for place, (light, _) in enumerate(PALETTE):
            text = text.replace(light, f"var(--s{place})")
        label = f'<svg role="img" aria-label="{escape(self.caption)}"'
        return text.replace(INK[0], "currentColor").replace("<svg", label, 1)

    @property
    def svg_file(self) -> str:
        """Return the figure as a file of its own, which follows light and dark."""
        head, end, body = self.svg.partition(">")
        return f"{head}{end}\n<style>{variables('svg')}</style>{body}"

    def save(self, folder: Path) -> list[Path]:
        """Write the figure as SVG, PDF and PNG, and return the paths."""
        contents = {
            "svg": self.svg_file.encode(),
            "pdf": self._save("pdf", metadata={"CreationDate": None}),
            "png": self._save("png", metadata={"Software": None}),
        }
        for ending, content in contents.items():
            with atomic_path(folder / f"{self.name}.{ending}") as part:
                part.write_bytes(content)
        return [folder / f"{self.name}.{ending}" for ending in contents]

    def _save(self, kind: str, **options: Any) -> bytes:
        buffer = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": self.name}, fname=STYLE):
            self.figure.savefig(buffer, format=kind, **options)
        self.figure.set_layout_engine(None)  # the first drawing has placed everything
        return buffer.getvalue()


def _shorter(found: re.Match[str]) -> str:
    """Return a number with as many digits as can be seen."""
    value = float(found[0])
    return f"{value:.{1 if value > 10 else 2}f}".rstrip("0").rstrip(".")


def variables(selector: str) -> str:
    """Return the CSS that gives the colours of figures their values, light and dark."""

    def values(dark: int) -> str:
        pairs = "".join(f"--s{place}:{pair[dark]};" for place, pair in enumerate(PALETTE))
        return f"{selector}{{{pairs}color:{INK[dark]}}}"

    text = "svg text{fill:currentColor}"
    return f"{values(0)}{text}@media (prefers-color-scheme:dark){{{values(1)}}}"


@dataclass(frozen=True)
class Look:
    """How the line and the markers of one label look."""

    place: int
    width: float = 1.4

    @property
    def colour(self) -> str:
        """Return its colour on a light page."""
        return PALETTE[self.place % len(PALETTE)][0]

    @property
    def line(self) -> dict[str, Any]:
        """Return the arguments of a line."""
        dash = DASHES[self.place % len(DASHES)] if self.width < 2 else "-"
        return {"color": self.colour, "linewidth": self.width, "linestyle": dash}

    @property
    def marker(self) -> dict[str, Any]:
        """Return the arguments of its markers; every other one is hollow."""
        face = self.colour if self.place % 2 == 0 or self.width > 2 else "none"
        shape = MARKERS[self.place % len(MARKERS)]
        return {"marker": shape, "markerfacecolor": face, "markeredgecolor": self.colour}


Looks = Mapping[str, Look]


def looks_of(labels: Iterable[str]) -> dict[str, Look]:
    """Return the look of each label: Source grey, DASP orange and thick, the others in order."""
    found = {SOURCE: Look(0, 2.2), "dasp": Look(1, 2.2)}
    for label in labels:
        found.setdefault(label, Look(len(found)))
    return found


def new_axes(width: float, height: float, *shape: int, **options: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure in the style of the report, and its axes."""
    with matplotlib.rc_context(fname=STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(*(shape or (1, 1)), squeeze=False, **options)
    return figure, list(axes.flat)


def add_legend(figure: Figure, entries: Mapping[str, Look], lines: bool = True) -> None:
    """Name the labels below the figure."""
    with matplotlib.rc_context(fname=STYLE):
        handles = [
            Line2D([], [], **(look.line if lines else {"linestyle": ""}), **look.marker)
            for look in entries.values()
        ]
        fit = max(1, int(150 / (7 + max(map(len, entries)))))  # that fit side by side
        columns = -(-len(entries) // -(-len(entries) // fit))
        figure.legend(handles, list(entries), loc="outside lower center", ncols=columns)


def _replicates(counts: Iterable[int]) -> str:
    found = sorted(set(counts))
    if found == [1]:
        return "one run"
    return f"mean over {'–'.join(map(str, dict.fromkeys((found[0], found[-1]))))} runs"


def _mean(values: Iterable[float]) -> float:
    return mean_std(values)[0]


def overview_chart(group: RunGroup, looks: Looks) -> Chart | None:
    """Draw the gain over Source of each method: one panel per protocol, all on one scale."""
    shifted = group.shifted or group.protocols
    names = [*shifted, *([AVERAGE] if len(shifted) > 1 else [])]
    names = names if len(names) <= PANELS else names[-1:]
    gains = {name: group.gain(name).dropna(axis=1, how="all") for name in names}
    labels = [n for n in group.labels if any(n in found.columns for found in gains.values())]
    if not labels:
        return None
    values = pd.concat([found.stack() for found in gains.values()])
    high = max(values.max(), 0.5)
    low = max(min(values.min(), -0.5), -1.5 * high - 2)  # a collapse must not squeeze the rest
    margin = 0.06 * (high - low)
    width = min(10.0, 1.4 + 2.6 * len(names))
    figure, panels = new_axes(width, 0.8 + 0.24 * len(labels), 1, len(names), sharey=True)
    for panel, (name, found) in zip(panels, gains.items(), strict=True):
        _gain_panel(panel, pretty(name), labels, found, looks, (low - margin, high + margin))
    panels[0].set_yticks(range(len(labels)), labels)
    panels[0].set_ylim(len(labels) - 0.5, -0.5)
    figure.supxlabel("gain over Source, points", fontsize=9, color=INK[0])
    runs = _replicates(int(n) for found in gains.values() for n in found.count())
    caption = (
        f"Gain over Source in points, on the same models and seeds: {runs}. Each stroke is one "
        "run, the bar is one standard deviation to either side of the mean. Left of the line at 0, "
        "adapting did harm; a marker at the very edge lies beyond it."
    )
    return Chart("overview", caption, figure)


def _gain_panel(
    panel: Axes,
    title: str,
    labels: Sequence[str],
    found: pd.DataFrame,
    looks: Looks,
    scale: tuple[float, float],
) -> None:
    """Draw one protocol: strokes, bars and means, the best mean in bold at the right."""
    panel.set_title(title, fontsize=9, loc="left")
    panel.set_xlim(*scale)
    panel.axvline(0, color="#8a919b", linewidth=1)
    panel.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    panel.tick_params(axis="y", length=0)
    best = max(rounded(float(mean)) for mean in found.mean())
    for row, label in enumerate(labels):
        if label not in found.columns:
            continue
        mean, spread = mean_std(found[label])
        look = looks[label]
        panel.plot(found[label], [row] * len(found), "|", color=look.colour, alpha=0.55)
        if not math.isnan(spread):
            ends = [min(max(mean + s * spread, scale[0]), scale[1]) for s in (-1, 1)]
            panel.plot(ends, [row, row], color=look.colour, linewidth=2)
        at = min(max(mean, scale[0]), scale[1])
        panel.plot(at, row, color=look.colour, clip_on=False, **look.marker)
        panel.text(
            1.02,
            row,
            Column("").write("gain", (mean, math.nan)),
            transform=panel.get_yaxis_transform(),
            fontweight="bold" if rounded(mean) == best else "normal",
            fontsize=8,
            va="center",
            color=INK[0],
        )


def domain_chart(group: RunGroup, protocol: str, looks: Looks) -> Chart:
    """Draw the accuracy of each method in each domain: one row per domain."""
    shares = group.by_domain(protocol)
    means = shares.groupby(level="domain", sort=False).mean()
    figure, (axes,) = new_axes(9.0, 1.1 + 0.21 * len(means) + 0.05 * len(means.columns))
    for label in means.columns:
        look = looks[label]
        axes.plot(means[label], range(len(means)), linestyle="", **look.marker)
    axes.set_yticks(range(len(means)), [name.replace("_", " ") for name in means.index])
    axes.set_ylim(len(means) - 0.4, -0.6)
    axes.set_xlabel("accuracy, %")
    add_legend(figure, {label: looks[label] for label in means.columns}, lines=False)
    counts = shares.groupby(level="domain").count()
    runs = _replicates(int(n) for n in counts.to_numpy().flat if n)
    caption = f"Accuracy by domain, {pretty(protocol)}: {runs}."
    return Chart(f"by-corruption-{file_name(protocol)}", caption, figure)


def stops(run: PlanRun) -> list[tuple[str, int, int]]:
    """Return (name for an axis, first batch, batches) of each stop of a stream.

    Domains whose samples share their batches are one stop.
    """
    found = []
    for first, here in groupby(run.counts.domains, key=lambda domain: domain.first_batch):
        domain, *others = here
        if others:
            found.append(("mixed", first, len(run.counts.batches.right) - first))
        else:
            found.append((short_name(domain.name), first, domain.batches))
    return found


def _stop_axis(axes: Axes, run: PlanRun) -> None:
    """Name the stops of a stream below, and part them by lines."""
    every = -(-len(stops(run)) // NAMES)
    found = stops(run)[::every]
    for _, first, _ in found if len(found) > 1 else ():
        axes.axvline(first, color="#8a919b", alpha=0.25, linewidth=0.6)
    centres = [first + batches / 2 for _, first, batches in found]
    axes.set_xticks(centres, [name for name, _, _ in found], **SLANTED)
    axes.grid(False, axis="x")
    axes.set_xlim(0, len(run.counts.batches.right))


def _alike(runs: Sequence[PlanRun], first: PlanRun) -> list[PlanRun]:
    """Return the runs whose batches lie at the same places as those of the first."""
    return [run for run in runs if stops(run) == stops(first)]


def stream_chart(group: RunGroup, protocol: str, looks: Looks) -> Chart:
    """Draw the accuracy of each method along a stream, as a running mean."""
    labels = [label for label in group.labels if group.of(label, protocol)]
    first = group.of(labels[0], protocol)[0]
    lengths = sorted(batches for _, _, batches in stops(first))
    window = max(1, lengths[len(lengths) // 2] // 2)
    runs = {label: _alike(group.of(label, protocol), first) for label in labels}
    figure, (axes,) = new_axes(9.0, 4.4)
    for place, (label, mine) in enumerate(runs.items()):
        if not mine:
            continue
        right = pd.DataFrame([run.counts.batches.right for run in mine]).sum()
        seen = pd.DataFrame([run.counts.batches.seen for run in mine]).sum()
        sums = [series.rolling(window, min_periods=1).sum() for series in (right, seen)]
        step = max(1, len(right) // 8)
        marks = (place * step // max(1, len(runs)), step)
        look = looks[label]
        curve = 100 * sums[0] / sums[1].clip(lower=1)
        axes.plot(curve.index + 0.5, curve, markevery=marks, **look.line, **look.marker)
    _stop_axis(axes, first)
    axes.set_ylabel("accuracy, %")
    add_legend(figure, {label: looks[label] for label in labels})
    counted = _replicates(len(mine) for mine in runs.values() if mine)
    caption = (
        f"Accuracy along the {pretty(protocol)} stream: running mean over {window} batches, "
        f"{counted}. Below: the domains; V, A and D are damage to video, audio and depth."
    )
    return Chart(f"accuracy-{file_name(protocol)}", caption, figure)


def diagnosis_chart(group: RunGroup, protocol: str) -> Chart | None:
    """Draw the diagnostic scores along a stream of one run, of DASP itself if it is there."""
    runs = [run for label in group.labels for run in group.of(label, protocol)[:1]]
    runs = [run for run in runs if run.counts.batches.scores and run.counts.batches.biased]
    runs.sort(key=lambda run: (run.label != "dasp", run.config.method != "dasp"))
    if not runs:
        return None
    run = runs[0]
    scores = pd.DataFrame(run.counts.batches.scores, dtype=float)
    scores = scores[sorted(scores.columns)]
    figure, (axes, strip) = new_axes(
        9.0, 4.2, 2, 1, sharex=True, height_ratios=(5, 0.45 * len(scores.columns))
    )
    look = dict(zip(scores.columns, (Look(10), Look(2), Look(3), Look(4)), strict=False))
    for name in scores.columns:
        axes.plot(scores.index + 0.5, scores[name], label=name, **look[name].line)
    delta = run.config.options.get("delta")
    if isinstance(delta, int | float):
        limit = scores.min(axis=1) + delta
        name = f"threshold: lowest score + {delta:g}"
        axes.plot(scores.index + 0.5, limit, ":", color=INK[0], linewidth=1, label=name)
    for row, name in enumerate(look):
        bad = [d for d in run.counts.domains if name in damaged(d.name).split("+")]
        spans = [(domain.first_batch, domain.batches) for domain in bad]
        named = [(b, 1) for b, names in enumerate(run.counts.batches.biased or ()) if name in names]
        colour = look[name].colour
        strip.broken_barh(spans, (row - 0.45, 0.9), color=colour, alpha=0.22, linewidth=0)
        strip.broken_barh(named, (row - 0.2, 0.4), color=colour)
    strip.set_yticks(range(len(look)), list(look))
    strip.set_ylim(len(look) - 0.5, -0.5)
    strip.grid(False)
    _stop_axis(strip, run)
    axes.set_ylabel("score")
    with matplotlib.rc_context(fname=STYLE):
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(look) + 1)
    caption = (
        f"Diagnostic scores along the {pretty(protocol)} stream of one run ({run.label}, "
        f"{run.replicate_name}). Below, for each modality: tinted where it is damaged, a bar where "
        "it was named."
    )
    return Chart(f"diagnosis-{file_name(protocol)}", caption, figure)


def forgetting_chart(group: RunGroup, protocol: str, looks: Looks) -> Chart | None:
    """Draw the loss on clean data after each domain of a stream, together and by modality."""
    found = forgetting(group, protocol)
    if not found:
        return None
    first = group.of(next(iter(found)), protocol)[0]
    views = list(next(iter(found.values())))
    figure, panels = new_axes(9.0, 1.6 + 1.25 * len(views), len(views), 1, sharex=True, sharey=True)
    places = ["before", *(f"after {name}" for name, _, _ in stops(first))]
    for panel, view in zip(panels, views, strict=True):
        panel.set_title(view_title(view), fontsize=9, loc="left")
        panel.axhline(0, color="#8a919b", linewidth=1)
        for place, (label, losses) in enumerate(found.items()):
            curve = losses[view].mean(axis=1)
            step = max(1, len(curve) // 7)
            look = looks[label]
            panel.plot(
                curve.index, curve, markevery=(place % step, step), **look.line, **look.marker
            )
    panels[len(panels) // 2].set_ylabel("points lost")
    every = -(-len(places) // NAMES)
    panels[-1].set_xticks(range(0, len(places), every), places[::every], **SLANTED)
    add_legend(figure, {label: looks[label] for label in found})
    seen = (first.counts.clean_after or {})["seen"]
    runs = _replicates(len(losses[views[0]].columns) for losses in found.values())
    caption = (
        f"Forgetting along the {pretty(protocol)} stream: accuracy on {seen} clean samples before "
        f"the first domain minus that after each domain, {runs}. Above 0, something was lost; "
        "Source stays at 0."
    )
    return Chart(f"forgetting-{file_name(protocol)}", caption, figure)


def _value_axis(axes: Axes, values: Sequence[float]) -> None:
    """Mark the values on the x axis, which is logarithmic if they span a wide range."""
    above = [value for value in values if value > 0]
    if len(above) > 1 and max(above) / min(above) >= 8 and min(values) >= 0:
        if min(values) > 0:
            axes.set_xscale("log")
        else:  # zero has a place of its own
            axes.set_xscale("symlog", linthresh=min(above), linscale=0.5)
            axes.set_xlim(-min(above) / 2, 1.3 * max(values))
    axes.xaxis.set_major_locator(FixedLocator(list(values)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _curve(axes: Axes, curve: Mapping[float, Sequence[float]], look: Look, band: bool) -> None:
    """Draw means with markers, and one standard deviation to either side as a band."""
    table = pd.DataFrame(
        {value: mean_std(curve[value]) for value in sorted(curve)}, index=["mean", "std"]
    ).T
    axes.plot(table.index, table["mean"], **look.line, **look.marker)
    if band and table["std"].notna().any():
        low, high = table["mean"] - table["std"], table["mean"] + table["std"]
        axes.fill_between(table.index, low, high, color=look.colour, alpha=0.18, linewidth=0)


def sensitivity_charts(group: RunGroup, looks: Looks) -> list[Chart]:
    """Draw accuracy against each varied option: one chart per row and protocol."""
    charts = []
    for protocol in group.protocols:
        for base, curves in sensitivity(group, protocol).items():
            columns = min(3, len(curves))
            rows = -(-len(curves) // columns)
            figure, panels = new_axes(9.0, 2.5 * rows + 0.4, rows, columns, sharey=True)
            source = _mean(run.accuracy for run in group.of(group.source, protocol))
            own = group.of(base, protocol)[0].config.options
            look = looks.get(base, Look(2))
            for panel, (option, curve) in zip(panels, curves.items(), strict=False):
                _curve(panel, curve, look, band=True)
                panel.axhline(source, **looks[SOURCE].line)
                panel.axvline(own[option], color="#8a919b", linewidth=1)
                panel.set_xlabel(option)
                _value_axis(panel, sorted(curve))
            for panel in panels[len(curves) :]:
                panel.remove()
            panels[0].set_ylabel("accuracy, %")
            add_legend(figure, {base: look, SOURCE: looks[SOURCE]})
            runs = _replicates(len(v) for curve in curves.values() for v in curve.values())
            caption = (
                f"Accuracy of {base} in the {pretty(protocol)} stream as one option varies, all "
                f"others as in its own row (vertical line: the value there), {runs}. Band: ± one "
                "standard deviation."
            )
            name = f"sensitivity-{base}-{file_name(protocol)}".replace(" ", "-")
            charts.append(Chart(name, caption, figure))
    return charts


def batch_size_charts(groups: Sequence[RunGroup], looks: Looks) -> list[Chart]:
    """Draw accuracy against batch size: one chart per protocol with several sizes."""
    charts = []
    for protocol in dict.fromkeys(p for group in groups for p in group.protocols):
        curves = batch_sizes(groups, protocol)
        if not curves:
            continue
        figure, (axes,) = new_axes(9.0, 3.6)
        for label, curve in curves.items():
            _curve(axes, curve, looks[label], band=label == "dasp")
        axes.set_xscale("log", base=2)
        _value_axis(axes, sorted({size for curve in curves.values() for size in curve}))
        axes.set(xlabel="samples per batch", ylabel="accuracy, %")
        add_legend(figure, {label: looks[label] for label in curves})
        runs = _replicates(len(v) for curve in curves.values() for v in curve.values())
        caption = f"Accuracy in the {pretty(protocol)} stream by batch size, {runs}."
        caption += " Band: ± one standard deviation of dasp." if "dasp" in curves else ""
        charts.append(Chart(f"batch-size-{file_name(protocol)}", caption, figure))
    return charts


def efficiency_charts(
    costs: Sequence[tuple[str, Result]], runs: Sequence[PlanRun], looks: Looks
) -> list[Chart]:
    """Draw accuracy against speed, memory and trained parameters: one chart per setting."""
    settings: dict[tuple[str, str, int, int], dict[str, Result]] = {}
    for label, result in costs:
        run = result.run
        setting = run.model["name"], run.protocol, run.severity, run.batch_size
        settings.setdefault(setting, {})[label] = result
    charts = []
    for (model, protocol, severity, size), found in settings.items():
        points = {n: (_costs(r), matching_accuracy(n, r, runs)) for n, r in found.items()}
        points = {n: point for n, point in points.items() if not math.isnan(point[1])}
        if not points:
            continue
        axis_names = [n for n in COSTS if all(p[0][n] is not None for p in points.values())]
        figure, panels = new_axes(9.0, 3.6, 1, len(axis_names), sharey=True)
        for panel, name in zip(panels, axis_names, strict=True):
            for label, (cost, accuracy) in points.items():
                panel.plot(cost[name], accuracy, linestyle="", **looks[label].marker)
            panel.set_xlabel(name)
            values = [cost[name] for cost, _ in points.values()]
            if min(values) > 0 and max(values) / min(values) >= 8:
                panel.set_xscale("log")
        panels[0].set_ylabel("accuracy, %")
        add_legend(figure, {label: looks[label] for label in points}, lines=False)
        threads = next(iter(found.values())).run.cost["threads"]
        caption = (
            f"Accuracy in the {pretty(protocol)} stream (severity {severity}, batch {size}) "
            f"against what adapting {model} costs, threads: {threads}. Speed is from raw inputs to "
            "logits, without loading; memory is what the process used beyond "
            "its state before the first batch."
        )
        name = f"efficiency-{model}-{file_name(protocol)}-{severity}-{size}"
        charts.append(Chart(name, caption, figure))
    return charts


COSTS = ("samples per second", "peak memory above start, MiB", "trained parameters")


def _costs(result: Result) -> dict[str, Any]:
    measured = result.measured
    speed = _mean(measured["samples"] / seconds["adapt"] for seconds in measured["rounds"])
    values = (speed, measured["memory"]["over_mib"], measured["trainable"])
    return dict(zip(COSTS, values, strict=True))
