import json
import re
from html.parser import HTMLParser

import pytest

from dasp.report.folder import read_folder
from dasp.report.html import write_report
from dasp.report.sections import sections_of
from dasp.report.shown import show

VOID = {"meta", "br"}


class Page(HTMLParser):
    """Checks that tags are balanced, and gathers text, addresses and names."""

    def __init__(self):
        super().__init__()
        self.open, self.words, self.addresses, self.names, self.tags = [], [], [], set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        self.names |= {value for name, value in attrs if name == "id"}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

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


def numbers(text):
    return json.loads(re.search(r'id="run-data">(.*?)</script>', text)[1])


def test_one_whole_page_without_network(results, show_from, tmp_path):
    path = tmp_path / "deep" / "report.html"
    page, text = read(write_report(show_from(results), path, "A <title>", "dasp report --x"))
    words = " ".join(page.words)
    assert not re.search(r"https?:|//[a-z]|url\(|@import|fetch\(|XMLHttp", text)
    for label in ("source", "tent", "read", "dasp", "per-domain video", "A <title>"):
        assert label in words
    for fact in ("dasp report --x", "delta = 0.05", "2.13.0", "x86_64", "sounding_shapes_1", "128"):
        assert fact in words
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]


def test_every_link_leads_somewhere(results, show_from, tmp_path):
    page, text = read(write_report(show_from(results), tmp_path / "r.html"))
    runs = {f"run-{key}" for key in numbers(text)["runs"]}
    assert len(runs) == len(results)
    assert {address[1:] for address in page.addresses} >= runs
    # Where scripts are off, the same links lead to the domains of the run.
    assert {address[1:] for address in page.addresses} <= page.names
    assert page.tags.count("noscript") == 1


def test_a_section_a_plan_with_what_it_found(tmp_path, make, save_results, save_plan):
    one, two = make("source"), make("dasp")
    save_results([one, two, make("tent")], tmp_path)
    save_plan(tmp_path, "mine", [f"{result['key']}.json" for result in (one, two)] + ["gone.json"])
    shown = [show(section) for section in sections_of(read_folder(tmp_path))]
    page, text = read(write_report(shown, tmp_path / "r.html"))
    assert {"plan-mine", "plan-other"} <= page.names
    contents = text[text.index('<nav class="contents"') : text.index("</nav>")]
    assert "Plan mine" in contents
    assert "missing: 1 of 3 runs" in contents
    assert "Best: dasp, " in contents
    assert "What it asks." in text
    assert "<code>dasp bench mine</code>" in text
    assert "1 of 3 runs are missing; run `dasp bench mine` to finish." in text


def test_verdicts_stand_line_by_line_in_the_section_not_in_the_contents(
    tmp_path, make, save_results, save_plan
):
    results = [make("source"), make("dasp")]
    save_results(results, tmp_path)
    names = [f"{result['key']}.json" for result in results]
    save_plan(tmp_path, "mine", names, show=["robustness", "stretches"])
    shown = [show(section) for section in sections_of(read_folder(tmp_path))]
    _, text = read(write_report(shown, tmp_path / "r.html"))
    contents, rest = text.split("</nav>", 1)
    assert "Best: dasp, " in contents
    assert "Clean visits" not in contents
    assert "<li>dasp: never more than 0.5 points below Source" in rest
    assert "<li>Clean visits: dasp " in rest


def test_plans_judged_together_are_judged_in_the_contents(tmp_path, make, save_results, save_plan):
    results = [make("source"), make("dasp")]
    save_results(results, tmp_path)
    names = [f"{result['key']}.json" for result in results]
    for place, name in enumerate(("one", "two")):
        save_plan(tmp_path, name, names, place=place, show=["robustness", "together"])
    shown = [show(section) for section in sections_of(read_folder(tmp_path))]
    _, text = read(write_report(shown, tmp_path / "r.html"))
    together = text[text.index('href="#plan-together"') : text.index("</nav>")]
    assert "dasp: never more than 0.5 points below Source" in together


def test_the_same_results_give_the_same_page(results, show_from, tmp_path):
    one = write_report(show_from(results), tmp_path / "a.html").read_bytes()
    assert one == write_report(show_from(results), tmp_path / "b.html").read_bytes()


def test_hostile_names_stay_text(make, show_from, tmp_path):
    evil = "</script><script>alert(1)</script>"
    results = [make(evil, model=evil, options={"x": evil}), make("source", model=evil)]
    page, text = read(write_report(show_from(results), tmp_path / "r.html", evil, evil, [evil]))
    assert page.tags.count("script") == 3  # the numbers, and two that draw them
    assert "alert(1)</script>" not in text
    assert evil in [run["label"] for run in numbers(text)["runs"].values()]


def test_warnings_and_rejections_are_kept(make, show_from, tmp_path):
    result = make()
    result["result"]["batches"]["rejected"][3] = "NaN in audio"
    result["result"]["rejections"] = 1
    shown = show_from([result])
    page, text = read(write_report(shown, tmp_path / "r.html", warnings=["a.json was left out"]))
    assert "a.json was left out" in " ".join(page.words)
    assert numbers(text)["runs"][result["key"]]["rejected"] == [[3, "NaN in audio"]]


@pytest.mark.parametrize("labels", [["dasp"], ["source"], ["tent", "mine"]])
def test_any_set_of_methods(make, show_from, tmp_path, labels):
    read(write_report(show_from([make(label) for label in labels]), tmp_path / "r.html"))
