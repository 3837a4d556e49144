import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dasp.report.groups import group_results, mean_std


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9))
def test_mean_and_sample_deviation(values):
    mean, std = mean_std(values)
    np.testing.assert_allclose([mean, std], [np.mean(values), np.std(values, ddof=1)], atol=1e-8)


@pytest.mark.parametrize("setting", [{"samples": 64}, {"batch_size": 64}, {"severity": 3}])
def test_different_settings_are_kept_apart(make, setting):
    groups = group_results([make(), make(**setting)])
    assert [len(group.runs) for group in groups] == [1, 1]
    assert groups[0].title != groups[1].title


def test_other_data_is_kept_apart(make):
    other = make()
    other["cell"]["data"]["name"] = "kinetics50"
    assert len(group_results([make(), other])) == 2


def test_the_worst_severity_comes_first(make):
    groups = group_results([make(severity=severity) for severity in (1, 5, 3)])
    assert [group.runs[0].severity for group in groups] == [5, 3, 1]


def test_one_label_with_two_options_is_shown_apart(make):
    group = group_results([make("source"), make(), make(options={"delta": 0.03})])[0]
    assert group.labels == ["source", "dasp (delta=0.05)", "dasp (delta=0.03)"]
    assert any("several delta" in note for note in group.notes)


def test_options_that_follow_the_protocol_keep_the_label(make):
    other = make(protocol="continual/audio", options={"lr": 0.01})
    assert group_results([make(), other])[0].labels == ["dasp"]


def test_a_cell_counts_once_and_the_last_run_of_it(make):
    first, again = make(), make()
    again["key"] = "f" * 16
    again["measured"]["finished"] = "2030-01-01T00:00:00+00:00"
    for order in ([first, again], [again, first]):
        group = group_results(order)[0]
        assert [run.key for run in group.runs] == ["f" * 16]
        assert "more than once" in group.notes[0]


def test_order_of_methods_and_protocols(make):
    labels = ["mine", "dasp", "yours", "tent", "source"]
    protocols = ["interleaved", "odd", "per_domain/audio"]
    group = group_results([make(label, name) for label in labels for name in protocols])[0]
    assert group.labels == ["source", "tent", "dasp", "mine", "yours"]
    assert group.protocols == ["per_domain/audio", "interleaved", "odd"]


def test_versions_that_differ_are_noted(make):
    other = make("source")
    other["measured"]["versions"]["torch"] = "1.0"
    assert "different versions" in group_results([make(), other])[0].notes[0]


def test_nothing_gives_no_group():
    assert group_results([]) == []


def test_a_choice_of_corruptions_is_kept_apart(make):
    other = make()
    other["cell"]["corruptions"] = ["fog"]
    groups = group_results([make(), other])
    assert [len(group.runs) for group in groups] == [1, 1]
    assert "only fog" in groups[1].title


def test_changed_code_is_never_averaged_with_the_old(make):
    results = [make(model=name) for name in "ab"]
    for result, code in zip(results, ("11112222aaaa", "33334444bbbb"), strict=True):
        result["cell"]["code"] = code
    assert group_results(results)[0].labels == ["dasp (code=11112222)", "dasp (code=33334444)"]


def test_code_that_changed_between_protocols_is_noted(make):
    results = [make(), make(protocol="continual/audio")]
    results[1]["cell"]["code"] = "33334444bbbb"
    group = group_results(results)[0]
    assert group.labels == ["dasp"]
    assert "its code changed" in group.notes[0]


def test_one_name_for_two_models_is_noted(make):
    results = [make(), make()]
    results[1]["cell"]["model"]["digest"] = "else"
    group = group_results(results)[0]
    assert len(group.runs) == 2
    assert "2 different weights" in group.notes[0]
