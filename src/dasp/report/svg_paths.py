"""The small change of a drawing: dashes, markers, and paths in few letters."""

from collections.abc import Sequence
from html import escape

DASHES = (
    "",
    "7 3",
    "2 2",
    "9 3 2 3",
    "5 2",
    "3 3",
    "12 4",
    "8 2 2 2 2 2",
    "",
    "6 6",
    "1 3",
    "14 2",
    "4 1 1 1",
)
_ROUND = "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z"
MARKERS = (  # drawn around a point, about eight wide; whether it is filled
    (_ROUND, True),
    ("m-3-3h6v6h-6z", True),
    ("m0-4l4 7h-8z", True),
    ("m0-4.5l4 4.5-4 4.5-4-4.5z", True),
    ("m0 4l4-7h-8z", True),
    ("m-3.5-3.5l7 7m-7 0l7-7", False),
    ("m0-4.5v9m-4.5-4.5h9", False),
    (_ROUND, False),
    ("m0-5.5l1.5 3.7 3.9.2-3 2.5.9 3.7-3.3-2.1-3.3 2.1.9-3.7-3-2.5 3.9-.2z", True),
    ("m-3.2-3.2h6.4v6.4h-6.4z", False),
    ("m-4 0l7-4v8z", True),
    ("m4 0l-7-4v8z", False),
    ("m-3.5-4h7l-7 8h7z", True),
)


def short(value: float) -> str:
    """Return a place of the drawing with one decimal at most, in few letters.

    >>> short(12.04), short(-0.52), short(3.25)
    ('12', '-.5', '3.2')
    """
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text.replace("0.", ".", 1) if abs(value) < 0.95 else text


def steps(points: Sequence[tuple[float, float]]) -> str:
    """Return a path through points, each written as the step from the one before.

    >>> steps([(10, 20), (12.5, 19.5), (15, 19.5)])
    'M10 20l2.5-.5 2.5 0'
    """
    # Whole tenths, so that rounding does not add up along the path.
    tenths = [(round(10 * x), round(10 * y)) for x, y in points]
    (x0, y0), *rest = tenths
    path, last = f"M{short(x0 / 10)} {short(y0 / 10)}", (x0, y0)
    for place, (x, y) in enumerate(rest):
        across, up = short((x - last[0]) / 10), short((y - last[1]) / 10)
        gap = "l" if place == 0 else "" if across.startswith("-") else " "
        path += f"{gap}{across}{'' if up.startswith('-') else ' '}{up}"
        last = (x, y)
    return path


def tip(title: str) -> str:
    """Return what a reader sees on pointing at a part."""
    return f"<title>{escape(title)}</title>" if title else ""


def legend_places(names: Sequence[str], width: float) -> list[tuple[float, int]]:
    """Return the (x, row) of each entry of a legend that wraps at `width`.

    >>> legend_places(["source", "dasp"], 110)
    [(0.0, 0), (0.0, 1)]
    """
    places: list[tuple[float, int]] = []
    x, row = 0.0, 0
    for name in names:
        length = 62 + 6.6 * len(name)  # a letter of the figures is about that wide
        if places and x + length - 22 > width:
            x, row = 0.0, row + 1
        places.append((x, row))
        x += length
    return places
