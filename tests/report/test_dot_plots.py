from xml.etree import ElementTree

import pytest

from dasp.report.dot_plots import corruption_figure, corruption_gain_figure
from dasp.report.groups import group_results


def drawn(figure):
    root = ElementTree.fromstring(figure.drawing)
    return [title.text for title in root.iter("title")], [t.text for t in root.iter("text")]


def share(result, place):
    domain = result["result"]["domains"][place]
    return 100 * domain["right"] / domain["seen"]


def test_a_dot_a_method_and_domain(results):
    group = group_results(results)[0]
    figure = corruption_figure(group, "continual/audio")
    tips, words = drawn(figure)
    assert len(tips) == len(group.labels) * 2
    assert "audio/traffic/5" in words
    assert "mean over 2 runs" in figure.caption


def test_gains_are_paired(make):
    mine, other, source = make(model="a"), make(model="b"), make("source", model="a")
    group = group_results([mine, other, source])[0]
    figure = corruption_gain_figure(group, "interleaved")
    assert "one run a method" in figure.caption
    tips, _ = drawn(figure)
    assert f"dasp, clean: {share(mine, 0) - share(source, 0):.1f}" in tips
    assert len(tips) == len(mine["result"]["domains"])


@pytest.mark.parametrize("labels", [["dasp"], ["source"]])
def test_no_gain_without_two(make, labels):
    group = group_results([make(label) for label in labels])[0]
    assert corruption_gain_figure(group, "interleaved") is None
