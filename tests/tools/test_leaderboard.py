"""Each row of the leaderboard says what its files say, and new files make a new row."""

import re
import sys
from pathlib import Path

import pytest

import dasp
from dasp.bench.datasets import DataOptions
from dasp.bench.engines import Workspace
from dasp.bench.plan import MethodRow, Plan
from dasp.bench.runner import run_plan

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import leaderboard as module  # noqa: E402

PAGE = ROOT / "docs" / "leaderboard.md"


def rows_of(text):
    """Return (data set, stream, samples per domain, cells) of each row of a page."""
    found, place = [], []
    for line in text.splitlines():
        if line.startswith("## "):
            words = line.removeprefix("## ").removesuffix(" samples per domain")
            data, _, rest = words.partition(": ")
            place = [data, *rest.split(", ")]
        elif line.startswith("| ") and not line.startswith(("| method", "| ---")):
            found.append((*place, line.strip("| ").split(" | ")))
    return found


def number(text):
    return float(text.split(" ")[0].replace("−", "-"))


def test_each_row_is_counted_again_from_the_files():
    frame = dasp.results(ROOT / "results")
    rows = rows_of(PAGE.read_text())
    assert len(rows) > 10
    for data, stream, samples, (name, accuracy, gain, interval, _, settings, _) in rows:
        method, _, label = name.removesuffix(")").partition(" (")
        batch = int(re.search(r"batch (\d+)", settings)[1])
        flavour = data.partition(", flavour ")[2] or "balanced"
        here = frame["data"].str.startswith(data.partition(",")[0])
        kinds = frame["data"].str.extract(r"flavour (\w+)")[0].fillna("balanced")
        here &= kinds == flavour
        people = frame["data"].str.extract(r"people ([\w+]+)")[0].fillna("")
        here &= people == data.partition(", people ")[2]
        here &= (frame["protocol"] == stream) & (frame["samples"] == int(samples))
        here &= frame["batch_size"] == batch
        both = {}
        for kind, mine in (("source", "source"), (method, label or method)):
            own = frame[here & (frame["method"] == kind) & (frame["label"] == mine)]
            own = own[own["plan"] == own["plan"].iloc[0]]
            sums = own.groupby("model")[["right", "seen"]].sum()
            both[mine] = 100 * sums["right"] / sums["seen"]
        mine = both[label or method]
        assert number(accuracy) == pytest.approx(mine.mean(), abs=0.006), name
        assert number(gain) == pytest.approx((mine - both["source"]).mean(), abs=0.006), name
        low, high = map(number, interval.strip("[]").split(", "))
        assert low <= number(gain) <= high


def test_a_folder_of_results_is_a_row(tmp_path, monkeypatch):
    plan = Plan(
        data=DataOptions(samples=16),
        models=(f"{ROOT}/tests/bench/small.py:build",),
        methods={
            "source": MethodRow("source"),
            "quick tent": MethodRow("tent", {"lr": 1e-3}),
            "tent": MethodRow("tent", {"lr": 1e-2}),
        },
        protocols=("interleaved", "clean"),
        batch_sizes=(8,),
        corruptions=("contrast",),
    )
    monkeypatch.setattr(module, "ROOT", tmp_path)
    workspace = Workspace(tmp_path / "results" / "mine", tmp_path / "store", workers=0)
    command = "dasp bench mine.toml --results results/mine"
    found = run_plan(plan, workspace, "mine", command, show=False)
    ((*place, cells),) = rows_of(module.leaderboard("results"))
    assert place == ["sounding_shapes", "interleaved", "16"]
    assert cells[0] == "tent"  # the row with the method's own name, of two
    assert number(cells[1]) == pytest.approx(found["tent"][0].counts.accuracy, abs=0.006)
    assert cells[5] == "1 model, batch 8, severity 5, lr 0.01"
    assert cells[6] == f"`{command}`"


def test_a_smaller_table_is_shown_only_if_it_has_another_method():
    class Row:
        def __init__(self, method, samples, rank=0):
            self.method, self.samples, self.rank, self.stream = method, samples, rank, "a: b"

    rows = [Row("dasp", 64), Row("dasp", 128), Row("mdaa", 128), Row("dasp", 256), Row("x", 256, 1)]
    found = module.boards([*rows, Row("x", 256, 2)])
    assert list(found) == [("a: b", 256), ("a: b", 128)]
    assert [(row.method, row.rank) for row in found["a: b", 256]] == [("dasp", 0), ("x", 2)]


@pytest.mark.parametrize(
    ("name", "command", "expected"),
    [
        ("paper/overview", "dasp bench paper --results r", "paper/overview --methods source 'a b'"),
        ("quick", "dasp bench quick --flavour sound", "quick --flavour sound"),
        (
            "real/dsa/streams",
            "dasp bench real/dsa --root /data --workers 2",
            "real/dsa/streams --root DIR --methods source 'a b'",
        ),
    ],
)
def test_the_command_is_the_shortest_that_makes_the_row(name, command, expected):
    class Row:
        label = "a b"

    record = module.PlanRecord(name, "", "", [], command, [])
    assert module.Entry(record, [Row], [], None).command == f"dasp bench {expected}"
