"""Names beside points, placed so that none covers another or a marker."""

from collections.abc import Iterator, Sequence

LETTER, LINE, MARKER = 7.0, 13.0, 7.0  # of text and markers, in the units of a drawing
Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def place_names(
    points: Sequence[tuple[float, float, str]], frame: Box
) -> list[tuple[float, float, str]]:
    """Return for each point (x, y, name) where its name stands: (x, y of the base line, anchor).

    The nearest free place is taken, beside the point first, then above, below and farther off;
    a name for which nothing is free stands beside its point.
    """
    taken = [_around(x, y) for x, y, _ in points]
    found = []
    for x, y, name in points:
        options = list(_options(x, y))
        free = [
            option
            for option in options
            if _inside(_box(name, *option), frame)
            and not any(_overlap(_box(name, *option), box) for box in taken)
        ]
        best = free[0] if free else options[0]
        taken.append(_box(name, *best))
        found.append(best)
    return found


def _options(x: float, y: float) -> Iterator[tuple[float, float, str]]:
    """Give places around a point, nearest first."""
    for far in (9.0, 16.0, 24.0, 34.0, 46.0):
        yield x + far, y + 4, "start"
        yield x - far, y + 4, "end"
        yield x, y - far, "middle"
        yield x, y + far + 9, "middle"
        for side, anchor in ((1, "start"), (-1, "end")):
            yield x + side * far * 0.7, y - far * 0.7, anchor
            yield x + side * far * 0.7, y + far * 0.7 + 8, anchor


def _around(x: float, y: float) -> Box:
    return x - MARKER, y - MARKER, x + MARKER, y + MARKER


def _box(name: str, x: float, y: float, anchor: str) -> Box:
    width = LETTER * len(name)
    left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
    return left, y - LINE + 3, left + width, y + 3


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _inside(box: Box, frame: Box) -> bool:
    return box[0] >= frame[0] and box[1] >= frame[1] and box[2] <= frame[2] and box[3] <= frame[3]
