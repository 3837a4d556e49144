from xml.etree import ElementTree

from dasp.report.export import export
from dasp.report.folder import read_folder
from dasp.report.sections import sections_of
from dasp.report.shown import show


def test_every_table_three_times_and_every_figure(results, show_from, tmp_path):
    shown = show_from(results)
    written = export(shown, tmp_path)
    tables = {path.stem for path in written if path.parent.name == "tables"}
    figures = [path for path in written if path.parent.name == "figures"]
    assert tables >= {"main", "diagnosis", "cost", "runs", "by-corruption-per_domain-video"}
    assert len(written) == len(set(written)) == 3 * len(tables) + len(figures)
    assert {path.suffix for path in written} == {".csv", ".md", ".tex", ".svg"}
    assert "dasp" in (tmp_path / "tables" / "main.csv").read_text()
    assert len(tables) + len(figures) == sum(len(part.items) for part in shown[0].parts)
    for path in figures:
        ElementTree.fromstring(path.read_text())
    assert (tmp_path / "figures" / "overview.svg") in figures


def test_a_folder_a_plan(tmp_path, make, save_results, save_plan):
    result = make()
    save_results([result, make("tent")], tmp_path)
    save_plan(tmp_path, "mine", [f"{result['key']}.json"])
    export(map(show, sections_of(read_folder(tmp_path))), tmp_path)
    for folder in (
        "tables/mine/main.md",
        "tables/other/main.md",
        "figures/mine/accuracy-interleaved.svg",
    ):
        assert (tmp_path / folder).is_file()


def test_settings_do_not_overwrite_each_other(make, show_from, tmp_path):
    written = export(show_from([make(), make(severity=3), make(samples=64)]), tmp_path)
    assert len(set(written)) == len(written)
    assert all(path.is_file() for path in written)
