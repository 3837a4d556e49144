import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from io import BytesIO

import pytest
from PIL import Image

from dasp.bench.plan import SHOWN
from dasp.bench.results import read_folder, write_result
from dasp.cli.report import publish, report
from dasp.report import figures
from dasp.report.published import read_paper
from dasp.report.sections import ONE_RUN, sections_of

VOID = {"meta", "br", "path", "use", "rect"}


class Page(HTMLParser):
    """Collects the ids, links and text of a page; fails if a tag is left open."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.outside, self.words = [], [], [], [], []
        self.marked = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if tag == "a" else []
        self.marked += [given["data-of"]] if "data-of" in given else []
        self.outside += [v for k, v in attrs if k in ("src", "href") and not v.startswith("#")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs): ...

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def looks():
    return figures.looks_of(["source", "tent", "read", "dasp"])


@pytest.fixture(scope="module")
def charts(grid, make, group, groups, looks):
    """One chart of each kind."""
    varied = [("source", make("source")), ("dasp", make())]
    varied += [(f"dasp delta={d}", make(options={"delta": d})) for d in (0.0, 0.2, 0.5)]
    return [
        figures.overview_chart(group(*grid), looks),
        figures.stream_chart(group(*grid), looks),
        *figures.sensitivity_charts(group(*varied), looks),
        *figures.batch_size_charts(groups(*(make(batch_size=n) for n in (16, 32))), looks),
    ]


def test_every_chart_is_svg_pdf_and_png_and_names_what_it_draws(charts, grid, group, looks):
    assert len({chart.name for chart in charts}) == 4
    for chart in charts:
        files = chart.files(for_print=True)
        root = ET.fromstring(files["svg"].decode())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.get("aria-label") == chart.caption
        assert files["pdf"].startswith(b"%PDF-")
        assert files["pdf"].rstrip().endswith(b"%%EOF")
        with Image.open(BytesIO(files["png"])) as image:
            assert image.size == tuple(round(160 * inch) for inch in chart.figure.get_size_inches())
            assert len(image.getcolors(1 << 20)) > 10
    overview, stream, *_ = charts
    assert all(f">{label}</text>" in overview.svg for label in ("tent", "read", "dasp"))
    assert ">V fog</text>" in stream.svg
    assert figures.stream_chart(group(*grid), looks).svg == stream.svg
    assert figures.overview_chart(group(grid[-1]), looks) is None  # without Source


def test_a_protocol_that_source_did_not_run_has_no_panel(make, group, looks):
    both = (make(name, protocol="interleaved") for name in ("source", "tent"))
    chart = figures.overview_chart(group(*both, make("tent", protocol="missing/audio")), looks)
    assert ">interleaved</text>" in chart.svg
    assert "missing" not in chart.svg


@pytest.mark.parametrize(("samples", "said"), [(64, "running mean over 2 batches"), (16, "each")])
def test_a_stream_says_what_its_line_is_a_mean_of(make, group, looks, samples, said):
    chart = figures.stream_chart(group(make("source", samples=samples)), looks)
    assert said in chart.caption
    assert "1 batches" not in chart.caption


def test_a_label_looks_the_same_in_every_figure():
    one, two = figures.looks_of(["tent", "source"]), figures.looks_of(["source", "tent", "x"])
    assert one["tent"] == two["tent"]
    drawn = [str(look) for look in figures.looks_of(map(str, range(20))).values()]
    assert len(set(drawn)) == 22


def test_the_report_of_a_folder(grid, make_cost, write, tmp_path, capsys):
    folder = write(tmp_path / "results", {"methods": [(r.run.method, r) for r in grid]})
    write(folder, {"costs": [("dasp", make_cost())]}, show=["efficiency"])
    assert report(folder, out=tmp_path / "out", figures=True) == 0
    page = Page((tmp_path / "out" / "report.html").read_text())
    text = " ".join(page.words)
    assert page.outside  # nothing is fetched: all of them are links to the files of figures
    assert all((tmp_path / "out" / link).is_file() for link in page.outside)
    assert {link.rpartition(".")[2] for link in page.outside} == {"svg", "pdf", "png"}
    assert set(page.outside) <= set(page.links)
    assert "About <b>it</b>." in text
    assert {"plan-methods", "plan-costs", "run"} <= set(page.ids)
    linked = {link for link in page.links if link.startswith("#run-")}
    assert linked == {f"#run-{r.run.key}" for r in grid}
    assert all(link[1:] in page.ids for link in set(page.links) - linked - set(page.outside))
    assert {r.run.method for r in grid} <= set(page.marked)  # can be hidden and highlighted
    tables = tmp_path / "out" / "tables" / "methods"
    cells = re.findall(r"\d\d\.\d ±\d\.\d", (tables / "main.md").read_text())
    assert len(cells) >= 12
    assert all(cell in text for cell in cells)
    assert {path.suffix for path in tables.iterdir()} == {".csv", ".md", ".tex"}
    drawn = {path.suffix for path in (tmp_path / "out" / "figures").rglob("*.*")}
    assert drawn == {".svg", ".pdf", ".png"}
    printed = capsys.readouterr().out
    assert "Plan methods" in printed
    assert "report.html" in printed


def test_the_numbers_of_a_run_are_in_the_page(make, write, tmp_path):
    run = make(right=[32, 16], clean={"seen": 9, "joint": [9, 8, 7]})
    folder = write(tmp_path, {"p": [("</script>", run)]}, show=[])
    publish(folder, folder)
    text = (folder / "report.html").read_text()
    data = re.search(r'id="run-data">(.*?)</script>', text, re.S)[1]
    found = json.loads(data)["runs"][run.run.key]
    assert (found["label"], sum(found["right"])) == ("</script>", 48)
    assert found["domains"] == [32, 16]
    assert found["scores"]["video"] == [0.3] * 4 + [0.2] * 4
    assert found["named"] == {"audio": [4, 5, 6, 7], "video": [0, 1, 2, 3]}
    assert found["clean"]["joint"] == [9, 8, 7]


def test_one_run_per_method_cannot_rank_them(make, write, tmp_path):
    once = write(tmp_path / "once", {"p": [("dasp", make()), ("tent", make("tent"))]})
    twice = [(n, make(n, seed=s)) for n in ("dasp", "tent") for s in (0, 1)]
    again = write(tmp_path / "again", {"p": twice})
    for folder, said in ((once, True), (again, False)):
        publish(folder, folder)
        assert ("one run cannot rank these" in (folder / "report.html").read_text()) == said


def test_damage_and_unfinished_plans_come_first(make, write, tmp_path, capsys):
    lost = make("tent")
    plans = {"p": [("dasp", make()), ("tent", lost)], "q": [("dasp", make())]}
    folder = write(tmp_path, plans, show=[], missing=[lost])
    (folder / "runs" / "broken.json").write_text("{")
    assert publish(folder, folder, only=["p"]) == 1
    text = (folder / "report.html").read_text()
    top = text[: text.index("<section")]
    assert "runs/broken.json was left out" in top
    assert "Plan p: 1 of 2 runs are missing; run `dasp bench p` to finish." in top
    printed = " ".join(capsys.readouterr().out.split())
    assert "1 of 2 runs are missing" in printed
    assert "Plan q" not in printed  # only some plans are summed up


@pytest.mark.parametrize("name", sorted(set(SHOWN) - {"together", "details"}))
def test_a_report_shows_whatever_a_plan_may_ask_for(make, make_cost, write, tmp_path, name):
    clean = {"seen": 9, "joint": [9, 8, 7]}
    domains = [f"{domain}/5" for domain in read_paper("dasp")["columns"]["audio"]] + ["clean"]
    shared = {"protocol": "continual/audio", "samples": 16}
    rows = [
        (f"{n} delta={d}" if d else n,
         make(n, domains=own, batch_size=b, options={"delta": d or 0.1}, **shared, **more))
        for n, d in (("source", 0), ("dasp", 0), ("dasp", 0.2))
        for own, b, more in ((domains[:-1], 16, {}), (domains, 8, {"clean": None}))
    ]  # fmt: skip
    rows += [("dasp", make("dasp", clean=clean)), ("dasp", make_cost())]
    folder = write(tmp_path, {"p": rows}, show=[name])
    (section,) = sections_of(read_folder(folder))
    details = ("Options", "Every run")
    assert [part for part in section.parts if not part.title.startswith(details)]
    assert list(section.notes) == [ONE_RUN] * (name == "comparison")


def test_settings_are_shown_apart_and_what_cannot_be_shown_is_said(make, write, tmp_path):
    runs = [(n, make(n, batch_size=b)) for n in ("source", "dasp") for b in (16, 32)]
    show = ["batch_size", "comparison", "robustness", "horoscope"]
    (section,) = sections_of(read_folder(write(tmp_path, {"sizes": runs}, show=show)))
    items = {item.name: item for item in section.items}
    assert {"batch-16-main", "batch-32-main", "batch-size", "batch-size-interleaved"} <= set(items)
    streams = [row["stream"].text for row in items["robustness"].rows]
    assert streams == ["interleaved (batch 16)", "interleaved (batch 32)", "average", "floor"]
    assert "this version cannot show 'horoscope'." in section.notes


def test_plans_that_ask_for_it_share_a_section(make, write, tmp_path):
    names = {"one": "pairs", "two": "sorted"}
    plans = {name: [(n, make(n, p)) for n in ("source", "dasp")] for name, p in names.items()}
    folder = write(tmp_path, plans, show=["robustness", "together"])
    sections = sections_of(read_folder(folder))
    assert [section.name for section in sections] == ["one", "two", "together"]
    floors, robustness = sections[-1].items
    assert (floors.name, robustness.name) == ("floors", "robustness")
    assert [row["stream"].text for row in robustness.rows][:2] == ["pairs", "sorted"]


def test_runs_of_no_plan_with_several_options_are_told_apart(tmp_path, make, grid, write):
    write(tmp_path, {"mine": [(r.run.method, r) for r in grid]})
    for protocol in ("continual/video", "interleaved"):
        for delta in (0.1, 0.2):
            write_result(tmp_path, make("dasp", protocol, options={"delta": delta}))
    mine, other = sections_of(read_folder(tmp_path))
    assert (mine.plan.title, other.plan.title) == ("Plan mine", "Other runs")
    assert {run.label for run in other.runs} == {"dasp (delta=0.1)", "dasp (delta=0.2)"}
