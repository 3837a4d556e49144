"""The figure that says it all: gains over Source by method and protocol, with their spread."""

from dasp.report.figures import Figure, styles
from dasp.report.grid import Quantity
from dasp.report.groups import Group, mean_std
from dasp.report.stream_plot import how_many
from dasp.report.svg import Plot, Style
from dasp.report.svg_paths import short
from dasp.report.tables import paired_gains, pretty

WIDTH, WIDEST, ROW, TOP, BOTTOM = 960, 420, 24, 30, 44
PANELS = 8  # that fit side by side; of more protocols, only the average is drawn
LETTER, VALUE = 7.4, 42  # the width of a letter, and of the number at the end of a row


def overview_figure(group: Group) -> Figure | None:
    """Gain over Source of each method: a panel a protocol, all on one scale; None without gains."""
    shifted = group.shifted or group.protocols
    names = [*shifted, *(["average"] if len(shifted) > 1 else [])]
    names = names if len(names) <= PANELS else names[-1:]
    gains = {name: paired_gains(group, name) for name in names}
    labels = [label for label in group.labels if any(gains[name].get(label) for name in names)]
    if not labels:
        return None
    scale = gain_scale(
        [gain for found in gains.values() for each in found.values() for gain in each]
    )
    left = min(260, round(18 + LETTER * max(map(len, labels))))
    each = min(WIDEST, (WIDTH - left) // len(names))
    whole = Plot((0, 1), (0, 1), width=WIDTH, height=TOP + ROW * len(labels) + BOTTOM, left=left)
    for place, name in enumerate(names):
        start = left + place * each
        panel = Plot(
            scale,
            (-0.5, len(labels) - 0.5),
            height=whole.height,
            left=start,
            right=WIDTH - start - each + VALUE,
            top=TOP,
            bottom=BOTTOM,
        )
        _draw(panel, pretty(name), labels, gains[name])
        whole.parts += panel.parts
    for place, label in enumerate(labels):
        whole.text(left - 10, TOP + ROW * (place + 0.5) + 4, label, "end")
    middle = left + each * len(names) / 2
    whole.text(middle, whole.height - 6, "gain over Source, points")
    replicates = how_many(each for found in gains.values() for each in found.values())
    caption = (
        f"Gain over Source in points, on the same models and seeds: {replicates}. Each stroke is "
        "one run, the line spans one standard deviation to either side of the mean. Left of the "
        "line at 0, adapting did harm; a marker at the very edge lies beyond it."
    )
    return Figure("overview", whole.svg(caption), caption)


def gain_scale(values: list[float]) -> tuple[float, float]:
    """Return the ends of the scale: all values, but a collapse does not squeeze the rest."""
    high = max(*values, 0.5)
    low = max(min(*values, -0.5), -1.5 * high - 2)
    margin = 0.06 * (high - low)
    return low - margin, high + margin


def _draw(panel: Plot, title: str, labels: list[str], gains: dict[str, list[float]]) -> None:
    """Draw one protocol: ticks, the line at zero, and a row a method, the best value in bold."""
    panel.x_axis("", about=max(3, (panel.width - panel.left - panel.right) // 45))
    panel.rule((0, 0), panel.y, strong=True)
    panel.text(panel.left, TOP - 12, title, "start")
    look = styles(labels)
    means = {
        label: Quantity(*mean_std(gains[label]), signed=True)
        for label in labels
        if gains.get(label)
    }
    best = max((mean.rounded or 0.0 for mean in means.values()), default=None)
    for place, label in enumerate(labels):
        y = len(labels) - 1 - place
        panel.rule(panel.x, (y, y))
        if label in means:
            mean = means[label]
            _row(panel, y, look[label], gains[label], mean, label)
            x, height = panel.width - panel.right + VALUE - 6, panel.at(0, y)[1] + 4
            words = mean.number.replace("-", "−")
            panel.text(x, height, words, "end", strong=mean.rounded == best)


def _row(
    panel: Plot, y: float, style: Style, gains: list[float], mean: Quantity, label: str
) -> None:
    """Draw a stroke a run, the spread as a line, and the mean."""

    def inside(gain: float) -> float:
        return min(max(gain, panel.x[0]), panel.x[1])

    middle, spread = mean.value or 0.0, mean.spread or 0.0
    start, height = panel.at(inside(middle - spread), y)
    end, _ = panel.at(inside(middle + spread), y)
    strokes = [panel.at(gain, y)[0] for gain in gains if gain == inside(gain)]
    path = "".join(f"M{short(x)} {short(height - 5)}v10" for x in strokes)
    line = f"M{short(start)} {short(height)}H{short(end)}"
    panel.parts.append(f'<path class="{style.name} line" opacity=".55" d="{path}"/>')
    panel.parts.append(f'<path class="{style.name} line" stroke-width="2" d="{line}"/>')
    panel.dot(inside(middle), y, style, f"{label}: {mean.text}")
