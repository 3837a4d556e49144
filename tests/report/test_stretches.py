import pytest

from dasp.report.folder import read_folder
from dasp.report.groups import group_results
from dasp.report.judged import streams_of
from dasp.report.sections import sections_of
from dasp.report.shown import show
from dasp.report.stretches import clean_flagged, clean_gap, stretches_table, stretches_verdicts

DOMAINS = ["clean", "video/fog/5", "clean", "audio/rain/5"]


@pytest.fixture
def stretched(make_right):
    """Source and a method on clean visits between damage; per cent right, and batches flagged."""

    def made(first, second, flagged=0, label="dasp", batch_size=64):
        settings = {"domains": DOMAINS, "batch_size": batch_size}
        source = make_right("source", "stretches", 90, 50, 92, 60, **settings)
        mine = make_right(label, "stretches", first, 99, second, 99, **settings)
        biased = mine["result"]["batches"]["biased"]
        for batch in range(len(biased or ())):
            biased[batch] = ["audio"] if batch < flagged else []
        return [source, mine]

    return made


def section_of(results, folder, save_results, save_plan):
    save_results(results, folder)
    names = [f"{result['key']}.json" for result in results]
    save_plan(folder, "mine", names, show=["stretches"])
    return sections_of(read_folder(folder))[0]


def test_only_clean_visits_count(stretched):
    (stream,) = streams_of(group_results(stretched(89, 92.5, flagged=6)))
    assert clean_gap(stream, "dasp").value == pytest.approx(-0.25)
    assert clean_flagged(stream.runs("dasp")) == (200, 3.0)
    (row,) = stretches_table([stream]).rows
    assert [cell.worse for cell in row] == [False, False, False, True, False, True]


@pytest.mark.parametrize(("flagged", "many"), [(3, False), (4, True)])
def test_fewer_than_two_per_cent_may_be_flagged(stretched, flagged, many):
    (row,) = stretches_table(streams_of(group_results(stretched(90, 92, flagged)))).rows
    assert row[-1].worse is many


def test_flags_are_asked_of_batches_of_64_alone(stretched):
    results = stretched(90, 92, flagged=150, batch_size=32)
    (row,) = stretches_table(streams_of(group_results(results))).rows
    assert row[-1].quantities[0].value > 2
    assert not row[-1].worse


def test_a_method_without_diagnosis_has_no_flags(stretched):
    (row,) = stretches_table(streams_of(group_results(stretched(90, 91, label="tent")))).rows
    assert row[-1].missing
    assert row[3].worse


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((90, 91.75, 0), "dasp holds (stretches −0.12, 0.0 % flagged)"),
        ((90, 91, 0), "dasp fails (stretches −0.50, 0.0 % flagged)"),
        ((90, 92, 10), "dasp fails (stretches +0.00, 5.0 % flagged)"),
    ],
)
def test_verdicts(stretched, numbers, words, tmp_path, save_results, save_plan):
    section = section_of(stretched(*numbers), tmp_path, save_results, save_plan)
    assert stretches_verdicts(section) == [f"Clean visits: {words}."]
    assert show(section).finding.endswith(f"\nClean visits: {words}.")


def test_streams_without_clean_visits_are_left_out(make_right, tmp_path, save_results, save_plan):
    results = [make_right(label, "pairs", 80) for label in ("source", "dasp")]
    section = section_of(results, tmp_path, save_results, save_plan)
    assert "Clean stretches" not in [part.title for part in show(section).parts]
    assert stretches_verdicts(section) == []
