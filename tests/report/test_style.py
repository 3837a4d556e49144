from xml.etree import ElementTree

from dasp.report.style import standalone
from dasp.report.svg import PALETTE, Plot, Style

SVG = "{http://www.w3.org/2000/svg}"


def test_a_drawing_alone_has_its_colours_and_a_page():
    plot = Plot((0, 1), (0, 1))
    plot.line([0, 1], [0, 1], Style(3), "a")
    root = ElementTree.fromstring(standalone(plot.svg("what > is drawn", [("a", Style(3))])))
    assert root.tag == f"{SVG}svg"
    assert root.get("aria-label") == "what > is drawn"
    rules = root.find(f"{SVG}style").text
    assert all(colour in rules for pair in PALETTE for colour in pair)
    assert "prefers-color-scheme:dark" in rules
    assert ".c3{color:var(--s3)}" in rules
    assert root.find(f"{SVG}rect").get("fill") == "var(--page)"
