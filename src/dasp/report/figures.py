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
from matplotlib.ticker import MaxNLocator

from dasp.report.compare import SOURCE, PlanRun, RunGroup, pretty
from dasp.report.formats import NAN, mean_std, write_mean
from dasp.report.frame import CLEAN, short_name, slug
from dasp.report.tables import batch_sizes, sensitivity

STYLE = Path(__file__).with_name("dasp.mplstyle")
PALETTE = matplotlib.rc_params_from_file(STYLE)["axes.prop_cycle"].by_key()["color"]
INK, LINE = "#1b1f24", "#8a919b"
DARK = "@media (prefers-color-scheme:dark){svg{filter:invert(1) hue-rotate(180deg)}}"
MARKERS = ("o", "D", "s", "^", "v", "P", "X", "<", ">", "p", "h")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1.5, 1.5)), (0, (1, 1)))
SLANTED: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
NAMES, TICKS = 32, 8  # domains, and values, that are named on an axis
PANELS = 8  # protocols side by side; of more, only the average is drawn
OF = "of-"  # begins the id of what belongs to one label, which the page can hide or highlight
Looks = Mapping[str, dict[str, Any]]
"""The arguments of the line of each label."""


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
        text = re.sub(rf' id="{OF}([^"]*)"', r' data-of="\1"', text)  # one page has many figures
        text = re.sub(r"\d+\.\d{2,}", lambda found: f"{float(found[0]):.4g}", text)
        text = re.sub(r"\s*\n\s*", "\n", text)
        return text.replace("<svg", f'<svg role="img" aria-label="{escape(self.caption)}"', 1)

    @property
    def svg_file(self) -> str:
        """Return the figure as a file of its own, which follows light and dark."""
        plain = re.sub(r' data-of="[^"]*"', "", self.svg)
        return plain.replace(">", f">\n<style>{DARK}</style>", 1)

    def files(self, for_print: bool) -> dict[str, bytes]:
        """Return the files by ending: SVG, and for print also PDF and PNG."""
        files = {"svg": self.svg_file.encode()}
        if for_print:
            files["pdf"] = self._save("pdf", metadata={"CreationDate": None})
            files["png"] = self._save("png", metadata={"Software": None})
        return files

    def _save(self, kind: str, **options: Any) -> bytes:
        buffer = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": self.name}, fname=STYLE):
            self.figure.savefig(buffer, format=kind, **options)
        self.figure.set_layout_engine(None)  # the first drawing has placed everything
        return buffer.getvalue()


def look(place: int, thick: bool = False) -> dict[str, Any]:
    """Return the arguments of a line and its markers; every other marker is hollow."""
    colour = PALETTE[place % len(PALETTE)]
    return {
        "color": colour,
        "linewidth": 2.2 if thick else 1.4,
        "linestyle": "-" if thick else DASHES[place % len(DASHES)],
        "marker": MARKERS[place % len(MARKERS)],
        "markerfacecolor": colour if thick or place % 2 == 0 else "none",
    }


def looks_of(labels: Iterable[str]) -> Looks:
    """Return the look of each label: Source grey, DASP orange and thick, the others in order."""
    names = dict.fromkeys((SOURCE, "dasp", *labels))
    return {label: look(place, thick=place < 2) for place, label in enumerate(names)}


def new_axes(width: float, height: float, *shape: int, **options: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure in the style of the report, and its axes."""
    with matplotlib.rc_context(fname=STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(*(shape or (1, 1)), squeeze=False, **options)
    return figure, list(axes.flat)


def mark(label: str, *artists: Any) -> None:
    """Say to which label some artists belong."""
    for artist in artists:
        artist.set_gid(f"{OF}{label}")


def add_legend(figure: Figure, labels: Collection[str], looks: Looks) -> None:
    """Name the labels below the figure."""
    handles = [Line2D([], [], markersize=4.5, **looks[label]) for label in labels]
    fit = max(1, int(150 / (7 + max(map(len, labels)))))  # that fit side by side
    columns = -(-len(labels) // -(-len(labels) // fit))
    style = {"frameon": False, "fontsize": 8, "labelcolor": INK, "ncols": columns}
    legend = figure.legend(handles, list(labels), loc="outside lower center", **style)
    for label, handle, words in zip(labels, legend.legend_handles, legend.get_texts(), strict=True):
        mark(label, handle, words)


def overview_chart(group: RunGroup, looks: Looks) -> Chart | None:
    """Draw the gain over Source of each method: one panel per protocol, all on one scale."""
    names = [name for name in group.columns if name != CLEAN] or group.protocols
    names = names if len(names) <= PANELS else names[-1:]
    every = {name: group.gain(name).dropna(axis=1, how="all") for name in names}
    gains = {name: found for name, found in every.items() if not found.empty}  # not Source alone
    labels = [n for n in group.labels if any(n in found.columns for found in gains.values())]
    if not labels:
        return None
    values = pd.concat([found.stack() for found in gains.values()])
    high = max(values.max(), 0.5)
    low = max(min(values.min(), -0.5), -1.5 * high - 2)  # a collapse must not squeeze the rest
    margin = 0.06 * (high - low)
    width = min(10.0, 1.4 + 2.6 * len(gains))
    figure, panels = new_axes(width, 0.8 + 0.24 * len(labels), 1, len(gains), sharey=True)
    for panel, (name, found) in zip(panels, gains.items(), strict=True):
        panel.set_title(pretty(name), fontsize=9, loc="left")
        panel.set_xlim(low - margin, high + margin)
        _gain_panel(panel, labels, found, looks)
    panels[0].set_yticks(range(len(labels)), labels)
    for label, words in zip(labels, panels[0].get_yticklabels(), strict=True):
        mark(label, words)
    panels[0].set_ylim(len(labels) - 0.5, -0.5)
    figure.supxlabel("gain over Source, points", fontsize=9, color=INK)
    caption = (
        "Gain over Source in points, on the same models and seeds, mean of all. Each stroke is one "
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
    best = max(round(mean, 1) for mean in found.mean())
    for row, label in enumerate(labels):
        if label not in found.columns:
            continue
        (mean, spread), colour = mean_std(found[label]), looks[label]["color"]
        drawn = panel.plot(found[label], [row] * len(found), "|", color=colour, alpha=0.55)
        drawn += panel.plot([mean - spread, mean + spread], [row, row], color=colour, linewidth=2)
        marker = looks[label] | {"linestyle": "none"}
        drawn += panel.plot(min(max(mean, low), high), row, clip_on=False, **marker)
        weight = "bold" if round(mean, 1) == best else "normal"
        place: dict[str, Any] = {"transform": panel.get_yaxis_transform(), "va": "center"}
        words = write_mean((mean, NAN), part="gain")
        value = panel.text(1.02, row, words, **place, fontweight=weight, fontsize=8, color=INK)
        mark(label, *drawn, value)


def stops(run: PlanRun) -> list[tuple[str, int, int]]:
    """Return (name for an axis, first batch, batches) of each stop of a stream.

    Domains whose samples share their batches are one stop.
    """
    found = []
    for first, here in groupby(run.counts.domains, key=lambda domain: domain.first_batch):
        domain, *others = here
        batches = len(run.counts.batches.right) - first if others else domain.batches
        found.append(("mixed" if others else short_name(domain.name), first, batches))
    return found


def stream_chart(group: RunGroup, looks: Looks) -> Chart:
    """Draw the accuracy of each method along a stream, as a running mean."""
    protocol = group.telling
    runs = [run for run in group.runs if run.protocol == protocol]
    places = stops(runs[0])
    runs = [run for run in runs if stops(run) == places]  # others cannot be averaged
    labels = [run.label for run in runs]
    lengths = sorted(batches for _, _, batches in places)
    window = max(1, lengths[len(lengths) // 2] // 2)

    def running(counts: Iterable[list[int]]) -> pd.DataFrame:  # (batches, labels)
        sums = pd.DataFrame(counts, index=labels).groupby(level=0, sort=False).sum()
        return sums.T.rolling(window, min_periods=1).sum()

    right = running([run.counts.batches.right for run in runs])
    seen = running([run.counts.batches.seen for run in runs])
    figure, (axes,) = new_axes(9.0, 4.4)
    step = max(1, len(right) // 8)
    for place, label in enumerate(right):
        curve = 100 * right[label] / seen[label].clip(lower=1)
        marks = (place * step // len(right.columns), step)  # not over those of the others
        mark(label, *axes.plot(curve.index + 0.5, curve, markevery=marks, **looks[label]))
    named = places[:: -(-len(places) // NAMES)]
    for _, first, _ in named[1:]:
        axes.axvline(first, color=LINE, alpha=0.25, linewidth=0.6)
    centres = [first + batches / 2 for _, first, batches in named]
    axes.set_xticks(centres, [name for name, _, _ in named], **SLANTED)
    axes.grid(False, axis="x")
    axes.set_xlim(0, len(right))
    axes.set_ylabel("accuracy, %")
    add_legend(figure, right.columns, looks)
    caption = (
        f"Accuracy along the {pretty(protocol)} stream: "
        f"{f'running mean over {window} batches' if window > 1 else 'of each batch'}, "
        "mean of all runs. Below: the domains; V, A and D are damage to video, audio and depth."
    )
    return Chart(slug(f"accuracy-{protocol}"), caption, figure)


def _curve_chart(
    name: str, caption: str, runs: pd.DataFrame, looks: Looks, band: str = ""
) -> Chart:
    """Draw mean accuracy over values: one panel per option, one line per method.

    The method `band` has ± one standard deviation as a band.
    """
    options = dict(list(runs.groupby("option", sort=False)))
    columns = min(3, len(options))
    rows = -(-len(options) // columns)
    figure, panels = new_axes(9.0, 2.2 * rows + 1.2, rows, columns, sharey=True)
    for panel, (option, own) in zip(panels, options.items(), strict=False):
        for label, curve in own.groupby("method", sort=False):
            line = curve.groupby("value")["accuracy"].agg(["mean", "std"])
            mark(label, *panel.plot(line.index, line["mean"], **looks[label]))
            if label == band:
                ends = line["mean"] - line["std"], line["mean"] + line["std"]
                shade = {"color": looks[label]["color"], "alpha": 0.18, "linewidth": 0}
                mark(label, panel.fill_between(line.index, *ends, **shade))
        panel.set_xlabel(option)
        values = sorted(set(own["value"]))
        above = [value for value in values if value > 0]
        if values[0] >= 0 and above and above[-1] / above[0] >= 8:  # zero has a place of its own
            panel.set_xscale("symlog", linthresh=above[0], linscale=0.5)
        if len(values) <= TICKS:
            panel.set_xticks(values, [f"{value:g}" for value in values])
            panel.minorticks_off()
    for panel in panels[len(options) :]:
        panel.remove()
    panels[0].set_ylabel("accuracy, %")
    add_legend(figure, list(dict.fromkeys(runs["method"])), looks)
    caption += f" Band: ± one standard deviation of {band}." if band in set(runs["method"]) else ""
    return Chart(name, caption, figure)


def sensitivity_charts(group: RunGroup, looks: Looks) -> list[Chart]:
    """Draw accuracy against each varied option: one chart per row and protocol."""
    charts = []
    for (protocol, base), runs in sensitivity(group).groupby(["protocol", "method"], sort=False):
        places = runs.drop_duplicates(["option", "value"])
        own = [run.accuracy for run in group.of(group.source, protocol)]
        source = [places.assign(method=SOURCE, accuracy=accuracy) for accuracy in own]
        name = slug(f"sensitivity-{base}-{protocol}")
        caption = (
            f"Accuracy of {base} in the {pretty(protocol)} stream as one option varies, all "
            "others as in its own row."
        )
        charts.append(_curve_chart(name, caption, pd.concat([runs, *source]), looks, base))
    return charts


def batch_size_charts(groups: Sequence[RunGroup], looks: Looks) -> list[Chart]:
    """Draw accuracy against batch size: one chart per protocol with several sizes."""
    charts = []
    for protocol, runs in batch_sizes(groups).groupby("protocol", sort=False):
        caption = f"Accuracy in the {pretty(protocol)} stream by batch size."
        name = slug(f"batch-size-{protocol}")
        charts.append(_curve_chart(name, caption, runs, looks, "dasp"))
    return charts
