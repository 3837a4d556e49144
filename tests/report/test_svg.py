from itertools import pairwise
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from dasp.report.svg import PALETTE, Plot, Style, legend, ticks


@given(st.floats(-1e4, 1e4), st.floats(1e-3, 1e4))
def test_ticks_are_few_even_and_inside(low, length):
    places = ticks(low, low + length)
    assert 1 <= len(places) <= 7
    assert all(low - 1e-6 <= place <= low + length + 1e-6 for place in places)
    steps = [b - a for a, b in pairwise(places)]
    assert all(abs(step - steps[0]) < 1e-6 for step in steps)


def test_corners():
    plot = Plot((0, 10), (0, 1), width=120, height=100, left=10, right=10, top=5, bottom=15)
    assert plot.at(0, 0) == (10, 85)
    assert plot.at(10, 1) == (110, 5)


def test_a_line_breaks_where_a_value_is_missing():
    plot = Plot((0, 4), (0, 1))
    plot.line([0, 1, 2, 3, 4], [0.1, 0.2, None, float("nan"), 0.3], Style(0), "a")
    path = ElementTree.fromstring(plot.svg("a")).find("path").get("d")
    assert path.count("M") == 2
    assert path.count("L") == 1


def test_words_are_escaped():
    plot = Plot((0, 1), (0, 1))
    plot.line([0, 1], [0, 1], Style(1), "<a>", every=1)
    plot.text(0, 0, "a & b")
    plot.box((0, 1), (0, 1), "fill:none", "<b>")
    plot.x_axis("<x>")
    plot.y_axis("<y>")
    root = ElementTree.fromstring(plot.svg('say "<this>"'))
    assert root.get("aria-label") == 'say "<this>"'
    assert {"<x>", "<y>", "a & b"} <= {text.text for text in root.iter("text")}
    assert {"<a>", "<b>"} <= {title.text for title in root.iter("title")}


def test_known_methods_differ_without_colour():
    plot = Plot((0, 1), (0, 1))
    looks, dashes = set(), set()
    for place in range(9):
        plot.parts.clear()
        plot.line([0, 1], [0, 1], Style(place), "", every=0)
        dash = plot.parts[0].split("dasharray:")[1]
        shape, fill = Style(place).mark(0, 0).split(" transform")
        looks.add((shape, "fill:none" in fill))
        dashes.add(dash)
    assert len(looks) == 9
    assert len(dashes) >= 8


def test_colours_are_legible_on_both_pages():
    def luminance(colour):
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one, other):
        low, high = sorted((luminance(one), luminance(other)))
        return (high + 0.05) / (low + 0.05)

    for light, dark in PALETTE:
        assert contrast(light, "#ffffff") >= 3
        assert contrast(dark, "#14171b") >= 3


def test_legend_names_everything():
    text = legend([("a<b", Style(0)), ("c", Style(1, marked=False))])
    root = ElementTree.fromstring(text)
    assert [span[0].tail.strip() for span in root] == ["a<b", "c"]
