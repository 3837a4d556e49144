"""The figures of a report, drawn by matplotlib: SVG for the page, PDF and PNG for papers.

A label keeps its colour, dash and marker in all figures of a report, so that colour is never all
that tells two lines apart. On a dark page, CSS inverts the lightness of a figure, not its hues.
"""

import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
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
from dasp.report.formats import NAN, mean_std, rounded, write_mean
from dasp.report.frame import damaged, short_name
from dasp.report.tables import batch_sizes, efficiency_table, file_name, forgetting, sensitivity

STYLE = Path(__file__).with_name("dasp.mplstyle")
PALETTE = matplotlib.rc_params_from_file(STYLE)["axes.prop_cycle"].by_key()["color"]
INK, LINE = "#1b1f24", "#8a919b"
DARK = "@media (prefers-color-scheme:dark){svg{filter:invert(1) hue-rotate(180deg)}}"
MARKERS = ("o", "D", "s", "^", "v", "P", "X", "<", ">", "p", "h")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1.5, 1.5)), (0, (1, 1)))
SLANTED: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
COSTS = {
    "samples/s": "samples per second",
    "MiB above start": "peak memory above start, MiB",
    "trained": "trained parameters",
}
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
        """Return the figure for the page, without what a browser does not need."""
        text = self._save("svg", metadata={"Date": None}, transparent=True).decode()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r' id="\w+_\d+"', "", text)
        text = re.sub(r"\d+\.\d{2,}", lambda found: f"{float(found[0]):.4g}", text)
        text = re.sub(r"\s*\n\s*", "\n", text)
        return text.replace("<svg", f'<svg role="img" aria-label="{escape(self.caption)}"', 1)

    @property
    def svg_file(self) -> str:
        """Return the figure as a file of its own, which follows light and dark."""
        head, end, body = self.svg.partition(">")
        return f"{head}{end}\n<style>{DARK}</style>{body}"

    def save(self, folder: Path, for_print: bool = True) -> list[Path]:
        """Write the figure as SVG, for print also as PDF and PNG, and return the paths."""
        contents = {"svg": self.svg_file.encode()}
        if for_print:
            contents["pdf"] = self._save("pdf", metadata={"CreationDate": None})
            contents["png"] = self._save("png", metadata={"Software": None})
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


@dataclass(frozen=True)
class Look:
    """How the line and the markers of one label look."""

    place: int
    width: float = 1.4

    @property
    def colour(self) -> str:
        """Return its colour."""
        return str(PALETTE[self.place % len(PALETTE)])

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


def add_legend(figure: Figure, labels: Collection[str], looks: Looks, lines: bool = True) -> None:
    """Name the labels below the figure."""
    handles = [
        Line2D(
            [], [], markersize=4.5, **looks[n].marker, **(looks[n].line if lines else {"ls": ""})
        )
        for n in labels
    ]
    fit = max(1, int(150 / (7 + max(map(len, labels)))))  # that fit side by side
    columns = -(-len(labels) // -(-len(labels) // fit))
    place = {"loc": "outside lower center", "ncols": columns}
    figure.legend(handles, list(labels), **place, frameon=False, fontsize=8, labelcolor=INK)


def _replicates(counts: Iterable[int]) -> str:
    found = sorted({int(count) for count in counts if count})
    if found == [1]:
        return "one run"
    return f"mean over {'–'.join(map(str, dict.fromkeys((found[0], found[-1]))))} runs"


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
        panel.set_title(pretty(name))
        panel.set_xlim(low - margin, high + margin)
        _gain_panel(panel, labels, found, looks)
    panels[0].set_yticks(range(len(labels)), labels)
    panels[0].set_ylim(len(labels) - 0.5, -0.5)
    figure.supxlabel("gain over Source, points", fontsize=9, color=INK)
    caption = (
        "Gain over Source in points, on the same models and seeds: "
        f"{_replicates(n for found in gains.values() for n in found.count())}. Each stroke is one "
        "run, the bar is one standard deviation to either side of the mean. Left of the line at 0, "
        "adapting did harm; a marker at the very edge lies beyond it."
    )
    return Chart("overview", caption, figure)


def _gain_panel(panel: Axes, labels: Sequence[str], found: pd.DataFrame, looks: Looks) -> None:
    """Draw one protocol: strokes, bars and means, the best mean in bold at the right."""
    panel.axvline(0, color=LINE, linewidth=1)
    panel.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    panel.tick_params(axis="y", length=0)
    low, high = panel.get_xlim()
    best = max(rounded(float(mean)) for mean in found.mean())
    for row, label in enumerate(labels):
        if label not in found.columns:
            continue
        mean, spread = mean_std(found[label])
        look = looks[label]
        panel.plot(found[label], [row] * len(found), "|", color=look.colour, alpha=0.55)
        panel.plot([mean - spread, mean + spread], [row, row], color=look.colour, linewidth=2)
        panel.plot(min(max(mean, low), high), row, clip_on=False, **look.marker)
        weight = "bold" if rounded(mean) == best else "normal"
        place = {"transform": panel.get_yaxis_transform(), "va": "center"}
        words = write_mean((mean, NAN), part="gain")
        panel.text(1.02, row, words, **place, fontweight=weight, fontsize=8, color=INK)


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
        axes.axvline(first, color=LINE, alpha=0.25, linewidth=0.6)
    centres = [first + batches / 2 for _, first, batches in found]
    axes.set_xticks(centres, [name for name, _, _ in found], **SLANTED)
    axes.grid(False, axis="x")
    axes.set_xlim(0, len(run.counts.batches.right))


def stream_chart(group: RunGroup, looks: Looks) -> Chart:
    """Draw the accuracy of each method along a stream, as a running mean."""
    protocol = group.telling
    runs = {n: found for n in group.labels if (found := group.of(n, protocol))}
    first = next(iter(runs.values()))[0]
    lengths = sorted(batches for _, _, batches in stops(first))
    window = max(1, lengths[len(lengths) // 2] // 2)
    # Only runs whose batches lie at the same places can be averaged.
    runs = {n: [run for run in found if stops(run) == stops(first)] for n, found in runs.items()}
    runs = {label: found for label, found in runs.items() if found}
    figure, (axes,) = new_axes(9.0, 4.4)
    for place, (label, mine) in enumerate(runs.items()):
        right = pd.DataFrame([run.counts.batches.right for run in mine]).sum()
        seen = pd.DataFrame([run.counts.batches.seen for run in mine]).sum()
        sums = [series.rolling(window, min_periods=1).sum() for series in (right, seen)]
        curve = 100 * sums[0] / sums[1].clip(lower=1)
        step = max(1, len(right) // 8)
        marks = {"markevery": (place * step // len(runs), step), **looks[label].marker}
        axes.plot(curve.index + 0.5, curve, **looks[label].line, **marks)
    _stop_axis(axes, first)
    axes.set_ylabel("accuracy, %")
    add_legend(figure, runs, looks)
    caption = (
        f"Accuracy along the {pretty(protocol)} stream: running mean over {window} batches, "
        f"{_replicates(map(len, runs.values()))}. Below: the domains; V, A and D are damage to "
        "video, audio and depth."
    )
    return Chart(f"accuracy-{file_name(protocol)}", caption, figure)


def diagnosis_chart(group: RunGroup) -> Chart | None:
    """Draw the diagnostic scores along a stream of one run, of DASP itself if it is there."""
    protocol = group.telling
    runs = [run for label in group.labels for run in group.of(label, protocol)[:1]]
    runs = [run for run in runs if run.counts.batches.scores and run.counts.batches.biased]
    if not runs:
        return None
    run = min(runs, key=lambda run: (run.label != "dasp", run.config.method != "dasp"))
    scores = pd.DataFrame(run.counts.batches.scores, dtype=float).sort_index(axis=1)
    figure, (axes, strip) = new_axes(
        9.0, 4.2, 2, 1, sharex=True, height_ratios=(5, 0.45 * len(scores.columns))
    )
    for row, (name, look) in enumerate(zip(scores, map(Look, (10, 2, 3, 4)), strict=False)):
        axes.plot(scores.index + 0.5, scores[name], label=name, **look.line)
        bad = [d for d in run.counts.domains if name in damaged(d.name).split("+")]
        spans = [(domain.first_batch, domain.batches) for domain in bad]
        named = [(b, 1) for b, names in enumerate(run.counts.batches.biased or ()) if name in names]
        strip.broken_barh(spans, (row - 0.45, 0.9), color=look.colour, alpha=0.22, linewidth=0)
        strip.broken_barh(named, (row - 0.2, 0.4), color=look.colour)
    delta = run.config.options.get("delta")
    if isinstance(delta, int | float):
        limit, name = scores.min(axis=1) + delta, f"threshold: lowest score + {delta:g}"
        axes.plot(scores.index + 0.5, limit, ":", color=INK, linewidth=1, label=name)
    strip.set_yticks(range(len(scores.columns)), list(scores))
    strip.set_ylim(len(scores.columns) - 0.5, -0.5)
    strip.grid(False)
    _stop_axis(strip, run)
    axes.set_ylabel("score")
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": len(scores.columns) + 1}
    axes.legend(**place, frameon=False, fontsize=8, labelcolor=INK)
    caption = (
        f"Diagnostic scores along the {pretty(protocol)} stream of one run ({run.label}, "
        f"{run.replicate_name}). Below, for each modality: tinted where it is damaged, a bar where "
        "it was named."
    )
    return Chart(f"diagnosis-{file_name(protocol)}", caption, figure)


def forgetting_chart(group: RunGroup, looks: Looks) -> Chart | None:
    """Draw the loss on clean data after each domain of a stream, together and by modality."""
    protocol = group.telling
    lost = forgetting(group, protocol)
    if lost.empty:
        return None
    labels, views = (lost.index.unique(level) for level in ("label", "view"))
    first = group.of(labels[0], protocol)[0]
    curves = lost.groupby(level=["label", "view"], sort=False).mean().T
    figure, panels = new_axes(9.0, 1.6 + 1.25 * len(views), len(views), 1, sharex=True, sharey=True)
    for panel, view in zip(panels, views, strict=True):
        panel.set_title(view)
        panel.axhline(0, color=LINE, linewidth=1)
        for place, label in enumerate(labels):
            curve = curves[label, view]
            step = max(1, len(curve) // 7)
            marks = {"markevery": (place % step, step), **looks[label].marker}
            panel.plot(curve.index, curve, **looks[label].line, **marks)
    panels[len(panels) // 2].set_ylabel("points lost")
    places = ["before", *(f"after {name}" for name, _, _ in stops(first))]
    every = -(-len(places) // NAMES)
    panels[-1].set_xticks(range(0, len(places), every), places[::every], **SLANTED)
    add_legend(figure, labels, looks)
    seen = (first.counts.clean_after or {})["seen"]
    runs = _replicates(lost.groupby(level=["label", "view"]).size())
    caption = (
        f"Forgetting along the {pretty(protocol)} stream: accuracy on {seen} clean samples before "
        f"the first domain minus that after each domain, {runs}. Above 0, something was lost; "
        "Source stays at 0."
    )
    return Chart(f"forgetting-{file_name(protocol)}", caption, figure)


def _curve(axes: Axes, runs: pd.DataFrame, x: str, look: Look, band: bool = True) -> None:
    """Draw mean accuracy over x with markers, and ± one standard deviation as a band."""
    curve = runs.groupby(x)["accuracy"].agg(["mean", "std"])
    axes.plot(curve.index, curve["mean"], **look.line, **look.marker)
    if band and curve["std"].notna().any():
        ends = curve["mean"] - curve["std"], curve["mean"] + curve["std"]
        axes.fill_between(curve.index, *ends, color=look.colour, alpha=0.18, linewidth=0)


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


def sensitivity_charts(group: RunGroup, looks: Looks) -> list[Chart]:
    """Draw accuracy against each varied option: one chart per row and protocol."""
    charts = []
    for (protocol, base), runs in sensitivity(group).groupby(["protocol", "method"], sort=False):
        curves = dict(list(runs.groupby("option", sort=False)))
        columns = min(3, len(curves))
        rows = -(-len(curves) // columns)
        figure, panels = new_axes(9.0, 2.5 * rows + 0.4, rows, columns, sharey=True)
        source = mean_std(run.accuracy for run in group.of(group.source, protocol))[0]
        own = group.of(base, protocol)[0].config.options
        for panel, (option, curve) in zip(panels, curves.items(), strict=False):
            _curve(panel, curve, "value", looks[base])
            panel.axhline(source, **looks[SOURCE].line)
            panel.axvline(own[option], color=LINE, linewidth=1)
            panel.set_xlabel(option)
            _value_axis(panel, sorted(set(curve["value"])))
        for panel in panels[len(curves) :]:
            panel.remove()
        panels[0].set_ylabel("accuracy, %")
        add_legend(figure, [base, SOURCE], looks)
        caption = (
            f"Accuracy of {base} in the {pretty(protocol)} stream as one option varies, all "
            "others as in its own row (vertical line: the value there), "
            f"{_replicates(runs.groupby(['option', 'value']).size())}. Band: ± one standard "
            "deviation."
        )
        name = f"sensitivity-{base}-{file_name(protocol)}".replace(" ", "-")
        charts.append(Chart(name, caption, figure))
    return charts


def batch_size_charts(groups: Sequence[RunGroup], looks: Looks) -> list[Chart]:
    """Draw accuracy against batch size: one chart per protocol with several sizes."""
    charts = []
    for protocol, runs in batch_sizes(groups).groupby("protocol", sort=False):
        figure, (axes,) = new_axes(9.0, 3.6)
        curves = dict(list(runs.groupby("method", sort=False)))
        for label, curve in curves.items():
            _curve(axes, curve, "size", looks[label], band=label == "dasp")
        axes.set_xscale("log", base=2)
        _value_axis(axes, sorted(set(runs["size"])))
        axes.set(xlabel="samples per batch", ylabel="accuracy, %")
        add_legend(figure, curves, looks)
        counts = runs.groupby(["method", "size"]).size()
        caption = f"Accuracy in the {pretty(protocol)} stream by batch size, {_replicates(counts)}."
        caption += " Band: ± one standard deviation of dasp." if "dasp" in curves else ""
        charts.append(Chart(f"batch-size-{file_name(protocol)}", caption, figure))
    return charts


def efficiency_charts(
    costs: Sequence[tuple[str, Result]], runs: Sequence[PlanRun], looks: Looks
) -> list[Chart]:
    """Draw accuracy against speed, memory and trained parameters: one chart per setting."""
    frame = efficiency_table(costs, runs).frame.set_index("method")
    frame["setting"] = [(r.run.protocol, r.run.severity, r.run.batch_size) for _, r in costs]
    threads = " or ".join(sorted({str(result.run.cost["threads"]) for _, result in costs}))
    charts = []
    known = frame.dropna(subset="accuracy, %")
    for (model, (protocol, severity, size)), found in known.groupby(["model", "setting"]):
        axis_names = [name for name in COSTS if found[name].notna().all()]
        figure, panels = new_axes(9.0, 3.6, 1, len(axis_names), sharey=True)
        for panel, name in zip(panels, axis_names, strict=True):
            for label, point in found.iterrows():
                panel.plot(point[name], point["accuracy, %"], ls="", **looks[label].marker)
            panel.set_xlabel(COSTS[name])
            if found[name].min() > 0 and found[name].max() / found[name].min() >= 8:
                panel.set_xscale("log")
        panels[0].set_ylabel("accuracy, %")
        add_legend(figure, found.index, looks, lines=False)
        caption = (
            f"Accuracy in the {pretty(protocol)} stream (severity {severity}, batch {size}) "
            f"against what adapting {model} costs, threads: {threads}. Speed is from raw inputs to "
            "logits, without loading; memory is what the process used beyond "
            "its state before the first batch."
        )
        name = f"efficiency-{model}-{file_name(protocol)}-{severity}-{size}"
        charts.append(Chart(name, caption, figure))
    return charts
