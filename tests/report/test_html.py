import re
from html.parser import HTMLParser

import pytest

from dasp.core.errors import InputError
from dasp.report.html import write_report

VOID = {"meta", "br"}


class Page(HTMLParser):
    """Checks that tags are balanced, and gathers text and addresses."""

    def __init__(self):
        super().__init__()
        self.open, self.words, self.addresses, self.tags = [], [], [], set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def read(path):
    page, text = Page(), path.read_text(encoding="utf-8")
    page.feed(text)
    page.close()
    assert page.open == []
    return page, text


def test_one_whole_page_without_network(results, tmp_path):
    path = write_report(results, tmp_path / "deep" / "report.html", "A <title>", "dasp bench --x")
    page, text = read(path)
    words = " ".join(page.words)
    assert not re.search(r"https?:|//[a-z]|url\(|@import", text)
    assert "script" not in page.tags
    assert page.addresses == []
    for label in ("source", "tent", "read", "dasp", "per-domain video", "A <title>"):
        assert label in words
    for fact in ("dasp bench --x", "delta = 0.05", "2.13.0", "x86_64", "sounding_shapes_1", "128"):
        assert fact in words
    assert text.count("<summary>") == len(results) + 2
    for result in results:
        cell, accuracy = result["cell"], result["result"]["accuracy"]
        run = f"{cell['model']['name']}, seed 0: {accuracy:.2f} %"
        assert any(word.startswith(cell["label"]) and word.endswith(run) for word in page.words)
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]


def test_the_same_results_give_the_same_page(results, tmp_path):
    one = write_report(results, tmp_path / "a.html").read_bytes()
    assert one == write_report(list(results), tmp_path / "b.html").read_bytes()


def test_hostile_names_stay_text(make, tmp_path):
    evil = "<script>alert(1)</script>"
    results = [make(evil, model=evil, options={"x": evil}), make("source", model=evil)]
    page, _ = read(write_report(results, tmp_path / "r.html", evil, evil, [evil]))
    assert "script" not in page.tags


def test_settings_get_sections_of_their_own(make, tmp_path):
    page, text = read(write_report([make(), make(batch_size=16)], tmp_path / "r.html"))
    assert text.count("<h2 id=") == 2
    assert page.addresses == ["#g0", "#g1"]
    assert "nothing is averaged across them" in text


def test_warnings_and_rejections_are_listed(make, tmp_path):
    result = make()
    result["result"]["batches"]["rejected"][3] = "NaN in audio"
    result["result"]["rejections"] = 1
    page, _ = read(write_report([result], tmp_path / "r.html", warnings=["a.json was left out"]))
    words = " ".join(page.words)
    assert "a.json was left out" in words
    assert "NaN in audio" in words


@pytest.mark.parametrize("labels", [["dasp"], ["source"], ["tent", "mine"]])
def test_any_set_of_methods(make, tmp_path, labels):
    read(write_report([make(label) for label in labels], tmp_path / "r.html"))


def test_no_results_leave_the_old_report(tmp_path):
    path = tmp_path / "r.html"
    path.write_text("old")
    with pytest.raises(InputError, match="no results"):
        write_report([], path)
    assert path.read_text() == "old"
