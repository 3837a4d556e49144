"""The figures of dots: a row a domain or a stream, a dot a method."""

from collections.abc import Mapping, Sequence

from dasp.report.figures import Figure, present, styles
from dasp.report.groups import Group, mean_std
from dasp.report.labels import LETTER
from dasp.report.stream_plot import how_many, value_range
from dasp.report.svg import Plot
from dasp.report.tables import Values, domain_accuracies, pretty

Means = Mapping[tuple[str, str], float]
"""A mean over replicates by (label, row)."""


def corruption_figure(group: Group, protocol: str) -> Figure:
    """Accuracy of every method in each domain."""
    labels, _ = present(group, protocol)
    each = _by_label(group, labels, protocol)
    caption = f"Accuracy by domain, {pretty(protocol)}: {_replicates(each)}."
    drawing = dots(labels, _means(each), "accuracy, %", caption)
    return Figure(f"by-corruption-{protocol.replace('/', '-')}", drawing, caption)


def corruption_gain_figure(group: Group, protocol: str) -> Figure | None:
    """Gain over Source in each domain, on the same models and seeds; None without Source."""
    labels, _ = present(group, protocol)
    each = _by_label(group, labels, protocol)
    source = each.pop(group.source_label, {}) if group.source_label is not None else {}
    gains = {
        label: {
            name: {key: values[key] - source[name][key] for key in values if key in source[name]}
            for name, values in found.items()
            if name in source
        }
        for label, found in each.items()
    }
    means = _means(gains)
    if not means:
        return None
    rivals = [label for label in labels if label in gains]
    caption = (
        f"Gain over Source by domain, {pretty(protocol)}, on the same models and seeds: "
        f"{_replicates(gains)}. Left of the line at 0, adapting did harm."
    )
    drawing = dots(rivals, means, "gain, points", caption)
    return Figure(f"gain-by-corruption-{protocol.replace('/', '-')}", drawing, caption)


def _by_label(group: Group, labels: Sequence[str], protocol: str) -> dict[str, dict[str, Values]]:
    return {label: domain_accuracies(group.of(label, protocol)) for label in labels}


def _means(each: Mapping[str, Mapping[str, Values]]) -> Means:
    means = {
        (label, name): mean_std(values.values())[0]
        for label, found in each.items()
        for name, values in found.items()
    }
    return {place: mean for place, mean in means.items() if mean is not None}


def _replicates(each: Mapping[str, Mapping[str, Values]]) -> str:
    return how_many(values for found in each.values() for values in found.values())


def dots(
    labels: Sequence[str],
    means: Means,
    axis: str,
    caption: str,
    scale: tuple[float, float] | None = None,
    front: Sequence[str] = (),
) -> str:
    """Draw the means, rows in order of appearance from the top, with a line at zero.

    What lies beyond `scale` is drawn at its edge. The labels in `front` have a lane of their own
    below the others, which are paler.
    """
    names = list(dict.fromkeys(name for _, name in means))
    low, high = scale or value_range([means.values()], 1.0)
    height = (36 if front else 24) * len(names) + 60
    left = max(190, round(LETTER * max(map(len, names), default=0)))
    plot = Plot((low, high), (-0.5, len(names) - 0.5), height=height, left=left, bottom=46)
    plot.x_axis(axis)
    if low < 0 < high:
        plot.rule((0, 0), plot.y, strong=True)
    look = styles(labels)
    behind = [label for label in labels if label not in front]
    lanes = [(behind, 0.2, ' opacity=".6"'), (front, -0.2, "")] if front else [(labels, 0.0, "")]
    for place, name in enumerate(names):
        y = len(names) - 1 - place
        ruled = y - 0.5 if front else y  # rows of two lanes are parted, others are threaded
        plot.rule(plot.x, (ruled, ruled))
        plot.text(plot.left - 8, plot.at(low, y)[1] + 4, name.replace("_", " "), "end")
        for lane, shift, shade in lanes:
            plot.parts.append(f"<g{shade}>")
            for label in lane:
                value = means.get((label, name))
                if value is not None:
                    x, told = min(max(value, low), high), f"{label}, {name}: {value:.1f}"
                    plot.dot(x, y + shift, look[label], told)
            plot.parts.append("</g>")
    return plot.svg(caption, [(label, look[label]) for label in labels], lines=False)
