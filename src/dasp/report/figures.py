"""The figures along a stream: accuracy, gain and diagnosis over time."""

from collections.abc import Sequence
from dataclasses import dataclass

from dasp.report.groups import METHODS, SOURCE, Group
from dasp.report.runs import Run
from dasp.report.stream_data import (
    accuracy_curve,
    alike,
    gain_curve,
    paired_source,
    usual_window,
)
from dasp.report.stream_plot import (
    centres,
    damaged_modalities,
    draw_curve,
    draw_strip,
    how_many,
    marker_step,
    score_axis,
    stream_plot,
    threshold_line,
    value_range,
)
from dasp.report.svg import Style
from dasp.report.tables import pretty


@dataclass(frozen=True)
class Figure:
    """A drawing as SVG, with its caption; `name` is fit for a file name."""

    name: str
    drawing: str
    caption: str


# A method keeps its colour, dash and marker when others are added: new ones go to the end.
LOOKS = (*(name for name in METHODS if name not in ("sumi", "brimpr")), "sumi", "brimpr")


def styles(labels: Sequence[str]) -> dict[str, Style]:
    """Return the style of each label; a known method looks the same in every figure."""
    others = [label for label in labels if label not in LOOKS]
    places = {label: LOOKS.index(label) for label in labels if label in LOOKS}
    places |= {label: len(LOOKS) + place for place, label in enumerate(others)}
    return {
        label: Style(places[label], 2.8 if label in (SOURCE, "dasp") else 1.6) for label in labels
    }


def modality_styles(names: Sequence[str]) -> dict[str, Style]:
    """Return the style of each modality, the same in every figure."""
    places = (8, 2, 3, 7)
    return {name: Style(places[n % len(places)], 1.5) for n, name in enumerate(sorted(names))}


def accuracy_figure(group: Group, protocol: str) -> Figure:
    """Accuracy over time through the stream, all methods."""
    labels, first = present(group, protocol)
    look, window = styles(labels), usual_window(first)
    runs = {label: alike(group.of(label, protocol), first) for label in labels}
    curves = {label: accuracy_curve(runs[label], window) for label in labels if runs[label]}
    plot = stream_plot(first, value_range(curves.values()), 400)
    plot.y_axis("accuracy, %")
    for label, curve in curves.items():
        draw_curve(plot, curve, look[label], label)
    depth = any(domain.damaged == "depth" for domain in first.domains)
    letters = "video (V), audio (A) or depth (D)" if depth else "video (V) or audio (A)"
    caption = (
        f"Accuracy through the {pretty(protocol)} stream: running mean over the last {window} "
        f"batches, {how_many(runs.values())}. Uprights: a new domain begins, of damaged {letters}."
    )
    drawing = plot.svg(caption, [(label, look[label]) for label in curves])
    return Figure(f"accuracy-{protocol.replace('/', '-')}", drawing, caption)


def gain_figure(group: Group, protocol: str) -> Figure | None:
    """Gain over Source since the start of the stream; None if there is no Source."""
    labels, first = present(group, protocol)
    look = styles(labels)
    curves, used = {}, []
    for label in labels:
        runs = alike(group.of(label, protocol), first)
        mine, source = paired_source(group, runs, first)
        if mine and label != group.source_label:
            curves[label] = gain_curve(mine, source)
            used.append(mine)
    if not curves:
        return None
    tenth = len(first.batches.right) // 10  # of the start: too few samples to fix the scale
    low, high = value_range([*(curve[tenth:] for curve in curves.values()), [-1.0, 1.0]], 0.5)
    plot = stream_plot(first, (low, high), 340)
    plot.y_axis("gain, points")
    plot.rule(plot.x, (0, 0), strong=True)
    for label, curve in curves.items():
        shown = [value if low <= value <= high else None for value in curve]
        draw_curve(plot, shown, look[label], label)
    caption = (
        f"Gain over Source through the {pretty(protocol)} stream: accuracy since the start minus "
        f"that of Source on the same models and seeds, {how_many(used)}. "
        "Below the line at 0, adapting did harm. Swings of the first batches may leave the frame."
    )
    drawing = plot.svg(caption, [(label, look[label]) for label in curves])
    return Figure(f"gain-{protocol.replace('/', '-')}", drawing, caption)


def diagnosis_figure(run: Run) -> Figure | None:
    """Redundancy of each modality through one run's stream, what was named and the truth."""
    scores, biased = run.batches.scores, run.batches.biased
    if not scores or biased is None:
        return None
    names, length = sorted(scores), len(biased)
    delta = run.options.get("delta")
    delta = delta if isinstance(delta, int | float) else None
    threshold = threshold_line([scores[name] for name in names], delta)
    low, high = value_range([*scores.values(), threshold], 0.02)
    strip = (high - low) / 12  # below the curves: a strip a modality, named and true
    plot = stream_plot(run, (low - strip * (2 * len(names) + 0.8), high), 450, left=118)
    score_axis(plot, low)
    look = modality_styles(names)
    for name in names:
        shown = [None if value is None else float(value) for value in scores[name]]
        plot.line(centres(length), shown, look[name], name, every=marker_step(length))
    if delta is not None:
        plot.line(centres(length), threshold, Style(0, 1.0), "threshold")
    rows = [(f"{name} named", name, [name in (b or ()) for b in biased]) for name in names]
    truth = damaged_modalities(run)
    rows += [
        (f"{name} damaged", name, [name in (t or "").split("+") for t in truth]) for name in names
    ]
    for place, (title, name, flags) in enumerate(rows):
        true = place >= len(names)
        y = low - strip * (place + (1.4 if true else 1.1))
        css = f"fill:{look[name].colour};opacity:{0.45 if true else 0.9}"
        draw_strip(plot, (y, y + 0.8 * strip), flags, css, title)
    caption = (
        f"Redundancy of each modality through the {pretty(run.protocol)} stream of one run "
        f"({run.label}, {run.replicate_name}). A modality is named where its score lies above "
        "the threshold; the strips show what was named and, below, what was truly damaged."
    )
    entries = [(name, look[name]) for name in names]
    entries += (
        [(f"threshold: lowest score + {delta:g}", Style(0, marked=False))]
        if delta is not None
        else []
    )
    return Figure(
        f"diagnosis-{run.protocol.replace('/', '-')}", plot.svg(caption, entries), caption
    )


def present(group: Group, protocol: str) -> tuple[list[str], Run]:
    """Return the labels that ran a protocol, and the first run of the first one."""
    labels = [label for label in group.labels if group.of(label, protocol)]
    return labels, group.of(labels[0], protocol)[0]
