import pytest

from dasp.core.errors import InputError
from dasp.report.runs import run_of


@pytest.mark.parametrize(
    "path",
    [
        ("key",),
        ("cell", "seed"),
        ("cell", "model", "name"),
        ("result", "domains"),
        ("result", "batches", "biased"),
        ("measured",),
    ],
)
def test_a_missing_field_is_named(make, path):
    result = make()
    inner = result
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    with pytest.raises(InputError, match=f"'{path[-1]}' is missing"):
        run_of(result)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("accuracy",), 12.0),
        (("right",), 3),
        (("seen",), 0),
        (("batches", "updated"), [True]),
        (("batches", "scores", "audio"), [0.1]),
        (("domains", 0, "right"), 1),
        (("domains", 0, "first_batch"), 10_000),
    ],
)
def test_counts_that_contradict_each_other_are_refused(make, path, value):
    result = make()
    inner = result["result"]
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    with pytest.raises(InputError, match="contradict"):
        run_of(result)


def test_fields_of_the_wrong_kind_are_refused(make):
    result = make()
    result["result"]["batches"]["right"][0] = "many"
    with pytest.raises(InputError, match="right kind"):
        run_of(result)


def test_newer_fields_do_no_harm(make):
    result = make()
    result["result"]["batches"]["loss"] = []
    result["result"]["domains"][0]["loss"] = 1.0
    assert run_of(result).label == "dasp"


def test_accuracy_comes_from_the_counts(make):
    run = run_of(make())
    assert run.accuracy == 100 * run.right / run.seen


def test_rollbacks_are_read_where_there_are_any(make):
    result = make()
    assert run_of(result).rollbacks == ()
    result["result"]["rollbacks"] = [{"batch": 3, "reason": "one class rules"}]
    assert run_of(result).rollbacks == ((3, "one class rules"),)
    result["result"]["rollbacks"] = [{"batch": 9_999, "reason": "never came"}]
    with pytest.raises(InputError, match="contradict"):
        run_of(result)
