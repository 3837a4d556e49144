import re
from itertools import pairwise
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from dasp.report.svg import PALETTE, Plot, Style, ticks
from dasp.report.svg_paths import steps


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
    assert path.count("l") == 1


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
    looks = {Style(place).mark(0, 0).split('class="')[1].split(" ", 1)[1] for place in range(12)}
    dashes = {Style(place).stroke("").split("d=")[0].split("line")[1] for place in range(12)}
    assert len(looks) == 12
    assert len(dashes) >= 11


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


def test_the_legend_is_part_of_the_drawing_and_wraps():
    names = [f"a method with a long name {n}" for n in range(9)]
    plot = Plot((0, 1), (0, 1), width=600, height=100)
    root = ElementTree.fromstring(plot.svg("a", [(name, Style(0)) for name in names]))
    texts = [text for text in root.iter("text") if text.text in names]
    assert [text.text for text in texts] == names
    height = float(root.get("viewBox").split()[3])
    assert all(100 < float(text.get("y")) < height for text in texts)
    assert all(float(text.get("x")) + 6 * len(names[0]) < 600 for text in texts)


@given(st.lists(st.tuples(st.floats(0, 960), st.floats(0, 400)), min_size=1, max_size=30))
def test_steps_lead_to_each_point(points):
    numbers = [float(n) for n in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", steps(points))]
    x = y = 0.0
    for place, (right_x, right_y) in enumerate(points):
        x, y = x + numbers[2 * place], y + numbers[2 * place + 1]
        assert abs(x - right_x) < 0.06
        assert abs(y - right_y) < 0.06
