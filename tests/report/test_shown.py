import numpy as np
import pytest

from dasp.core.errors import InputError
from dasp.report import shown as shown_module
from dasp.report.figures import Figure
from dasp.report.folder import read_folder
from dasp.report.parts import Part
from dasp.report.sections import sections_of
from dasp.report.shown import by_group, show


def with_hits(result):
    """Say which samples of each domain were right."""
    for domain in result["result"]["domains"]:
        flags = np.arange(domain["seen"]) < domain["right"]
        domain["hits"] = np.packbits(flags).tobytes().hex()
    return result


def names_of(shown):
    return [item.name for part in shown.parts for item in part.items]


def test_a_comparison_has_every_table_and_figure_once(results, show_from):
    (shown,) = show_from(results)
    names = names_of(shown)
    expected = {"main", "overview", "diagnosis", "cost", "options", "runs", "gain-interleaved"}
    expected |= {"by-corruption-per_domain-video", "gain-by-corruption-continual-audio"}
    assert expected <= set(names)
    tables = [i.name for part in shown.parts for i in part.items if not isinstance(i, Figure)]
    figures = [i.name for part in shown.parts for i in part.items if isinstance(i, Figure)]
    assert len(set(tables)) == len(tables)
    assert len(set(figures)) == len(figures)
    assert [note for note in shown.notes if "older version" not in note] == []


def test_only_what_the_plan_asks_for_is_shown(tmp_path, make, save_results, save_plan, monkeypatch):
    result = make()
    save_results([result], tmp_path)
    names = [f"{result['key']}.json", "gone.json", "lost.json"]
    save_plan(tmp_path, "mine", names, show=["mine", "unheard"], command="dasp bench mine")
    draw = by_group(lambda group: [Part("Mine", [Figure("drawn", "<svg></svg>", "")])])
    monkeypatch.setitem(shown_module.SHOWN, "mine", (draw,))
    shown = show(sections_of(read_folder(tmp_path))[0])
    assert names_of(shown) == ["drawn", "options", "cost", "runs"]
    assert shown.notes == [
        "2 of 3 runs are missing; run `dasp bench mine` to finish.",
        "this version cannot show 'unheard'.",
    ]


def test_several_settings_stay_apart(make, show_from):
    (shown,) = show_from([make(), make(severity=3)])
    names = names_of(shown)
    assert {"severity-5-main", "severity-3-main"} <= set(names)
    assert "Comparison: severity 3" in [part.title for part in shown.parts]


@pytest.mark.parametrize(("labels", "drawn"), [(["dasp"], False), (["dasp", "source"], True)])
def test_what_cannot_be_drawn_is_left_out(make, show_from, labels, drawn):
    (shown,) = show_from([make(label) for label in labels])
    assert ("overview" in names_of(shown)) is drawn
    assert ("gain-interleaved" in names_of(shown)) is drawn


def test_runs_that_kept_their_samples_are_paired(make, show_from):
    (shown,) = show_from([with_hits(make(label)) for label in ("source", "tent", "dasp")])
    assert {"paired", "rivals", "paired-interleaved"} <= set(names_of(shown))
    assert shown.notes == []


def test_what_cannot_be_drawn_does_not_hide_the_rest(make, show_from, monkeypatch):
    def refuse(section):
        raise InputError("its samples differ.")

    both = (refuse, *shown_module.SHOWN["comparison"])
    monkeypatch.setitem(shown_module.SHOWN, "comparison", both)
    (shown,) = show_from([with_hits(make())])
    assert "main" in names_of(shown)
    assert shown.notes == ["its samples differ."]


def test_published_figures_where_a_plan_asks_for_them(tmp_path, make, save_results, save_plan):
    results = [make(label, "per_domain/audio") for label in ("source", "dasp")]
    save_results(results, tmp_path)
    names = [f"{result['key']}.json" for result in results]
    save_plan(tmp_path, "mine", names, show=["published"])
    shown = show(sections_of(read_folder(tmp_path))[0])
    assert shown.parts[0].title == "Beside published figures"
    assert "main" not in names_of(shown)
