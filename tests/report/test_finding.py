import re

from dasp.report.finding import finding


def test_the_best_its_gain_and_the_next(results, sections_from):
    text = finding(sections_from(results)[0])
    pattern = (
        r"Best: dasp, \d\d\.\d % \(mean of 5 protocols\), \+\d\.\d ±\d\.\d over Source; next: "
    )
    assert re.match(pattern + r"(tent|read), [+−]\d\.\d ±\d\.\d\.", text)


def test_source_may_be_best(make, sections_from):
    source, worse = make("source"), make("tent")
    source["result"]["batches"]["right"] = [32] * len(source["result"]["batches"]["right"])
    for domain in source["result"]["domains"]:
        domain["right"] = domain["seen"]
    source["result"]["right"], source["result"]["accuracy"] = source["result"]["seen"], 100.0
    text = finding(sections_from([source, worse])[0])
    assert text.startswith("Best: source, 100.0 % (interleaved); next: tent, −")


def test_equals_are_both_named(make, sections_from):
    one, other = make("a", method="tent"), make("b", method="tent")
    other["result"] = one["result"]
    assert "; level with it: " in finding(sections_from([one, other])[0])


def test_the_order_is_that_before_rounding(make, sections_from):
    results = [make("source"), *(make(label, method="tent") for label in ("a", "b", "c"))]
    for result, right in zip(results, (1, 5000, 5001, 9000), strict=True):
        seen = 10240
        batches = {"right": [right], "seen": [seen], "updated": [True], "rejected": [None]}
        domain = {"name": "clean", "right": right, "seen": seen, "first_batch": 0, "batches": 1}
        result["result"] |= {
            "right": right, "seen": seen, "accuracy": 100 * right / seen, "domains": [domain],
            "batches": {**batches, "scores": None, "biased": None},
        }  # fmt: skip
    assert "Best: c, " in (text := finding(sections_from(results)[0]))
    assert "; next: b, " in text


def test_fewer_replicates_cannot_win(make, sections_from):
    results = [make("tent"), make("tent", model="b"), make("dasp")]
    assert finding(sections_from(results)[0]).startswith("Best: tent, ")


def test_several_settings_are_counted(make, sections_from):
    grid = [make(label, severity=level) for level in (3, 5) for label in ("source", "dasp")]
    assert finding(sections_from(grid)[0]) == "Best: dasp in 2 of 2 settings."


def test_a_run_that_was_stopped_early_has_no_best_yet(make, sections_from):
    assert finding(sections_from([make("source"), make("dasp", "continual/audio")])[0]) == ""
