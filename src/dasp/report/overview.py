"""The figure that says it all: gains over Source by method and protocol, with their spread."""

from dasp.report.figures import Figure, styles
from dasp.report.grid import Quantity
from dasp.report.groups import Group, mean_std
from dasp.report.stream_plot import how_many
from dasp.report.svg import Plot, Style
from dasp.report.svg_paths import short
from dasp.report.tables import paired_gains, pretty

WIDTH, WIDEST, ROW, TOP, BOTTOM = 960, 420, 24, 30, 44
LETTER, VALUE = 6.6, 46  # the width of a letter, and of the number at the end of a row


def overview_figure(group: Group) -> Figure | None:
    """Gain over Source of each method: a panel a protocol, all on one scale; None without gains."""
    names = [*group.protocols, *(["average"] if len(group.shifted) > 1 else [])]
    gains = {name: paired_gains(group, name) for name in names}
    labels = [label for label in group.labels if any(gains[name].get(label) for name in names)]
    if not labels:
        return None
    scale = _scale([gain for found in gains.values() for each in found.values() for gain in each])
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
        y = TOP + ROW * (place + 0.5) + 4
        whole.text(left - 10, y, label, "end")
    replicates = how_many(each for found in gains.values() for each in found.values())
    caption = (
        f"Gain over Source in points, on the same models and seeds: {replicates}. Each stroke is "
        "one run, the line spans one standard deviation to either side of the mean. Left of the "
        "line at 0, adapting did harm; a marker at the very edge lies beyond it."
    )
    return Figure("overview", whole.svg(caption), caption)


def _scale(values: list[float]) -> tuple[float, float]:
    """Return the ends of the scale: all values, but a collapse does not squeeze the rest."""
    high = max(*values, 0.5)
    low = max(min(*values, -0.5), -1.5 * high - 2)
    margin = 0.06 * (high - low)
    return low - margin, high + margin


def _draw(panel: Plot, title: str, labels: list[str], gains: dict[str, list[float]]) -> None:
    """Draw one protocol: ticks, the line at zero, and a row a method."""
    panel.x_axis("", about=max(2, (panel.width - panel.left - panel.right) // 45))
    panel.rule((0, 0), panel.y, strong=True)
    panel.text(panel.left, TOP - 12, title, "start")
    look = styles(labels)
    for place, label in enumerate(labels):
        y = len(labels) - 1 - place
        panel.rule(panel.x, (y, y))
        if gains.get(label):
            _row(panel, y, look[label], label, gains[label])


def _row(panel: Plot, y: float, style: Style, label: str, gains: list[float]) -> None:
    low, high = panel.x
    mean, spread = mean_std(gains)
    middle = min(max(mean or 0.0, low), high)
    words = Quantity(mean, spread, signed=True)
    ends = [min(max(middle + side * (spread or 0.0), low), high) for side in (-1, 1)]
    line = Style(style.place, 2.0)
    (x0, height), (x1, _) = panel.at(ends[0], y), panel.at(ends[1], y)
    strokes = [panel.at(gain, y)[0] for gain in gains if low <= gain <= high]
    path = "".join(f"M{short(x)} {short(height - 5)}v10" for x in strokes)
    panel.parts.append(f'<path class="{line.name}" opacity=".55" d="{path}"/>')
    panel.parts.append(
        f'<path class="{line.name}" stroke-width="2" d="M{short(x0)} {short(height)}H{short(x1)}"/>'
    )
    panel.dot(middle, y, style, f"{label}: {words.text}")
    panel.text(
        panel.width - panel.right + VALUE - 6, height + 4, words.number.replace("-", "−"), "end"
    )
