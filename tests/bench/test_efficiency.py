"""What is counted of a method's cost is exact; what is timed is only asked to be there."""

from dataclasses import replace

import pytest

from dasp.bench import efficiency
from dasp.bench.efficiency import FORMAT, STREAMS, efficiency_files, measurements, run_efficiency
from dasp.bench.features import Features
from dasp.bench.kinds import files_of, run_any
from dasp.bench.measure import measure
from dasp.bench.memory import forget_peak, peak_mib, resident_mib
from dasp.bench.plan import Entry
from dasp.bench.references import find_model
from dasp.bench.results import read_result
from dasp.core.errors import DataError, OptionError


@pytest.fixture
def costs(plan):
    """Twenty samples in batches of eight: 8, 8, 4; two domains a stream."""
    return replace(plan, kind="efficiency", protocols=("interleaved",))


def measured(plan, place, label):
    features = Features(plan.data.open(), find_model(plan.models[0]), place.open_store())
    (item,) = [item for item in measurements(plan) if item.label == label]
    ticks = []
    counts, figures = measure(item, features, 2, lambda: ticks.append(1))
    return counts, figures, len(ticks)


def test_a_stream_is_counted_and_rounds_take_turns(costs, place):
    counts, figures, ticks = measured(costs, place, "tent")
    assert (counts["samples"], counts["batches"], counts["updates"]) == (40, 6, 6)
    assert ticks == 5
    assert [entry["call"] for entry in counts["passes"]] == ["encode", "encode", "fuse"]
    for entry in counts["passes"]:
        assert (entry["gradient"], entry["forward"], entry["backward"]) == (True, 40, 40)
    assert len(figures["rounds"]) == len(figures["source"]) == 2
    for seconds in figures["rounds"] + figures["source"]:
        assert set(seconds) == {"load", "adapt", "processor"}
        assert seconds["adapt"] > 0


def test_parameters_are_the_methods_own(costs, place):
    model = find_model(costs.models[0])
    total = sum(parameter.numel() for parameter in model.parameters())
    counts, _, _ = measured(costs, place, "source")
    assert (counts["trainable"], counts["total"], counts["updates"]) == (0, total, 0)
    counts, _, _ = measured(costs, place, "dasp")
    adapters = 2 * (16 * 16 + 2 * 32 * 16)  # width 16: a plastic map, a stable one of rank 32
    assert (counts["trainable"], counts["total"]) == (adapters, total + adapters)


def test_a_fresh_process_a_method_and_a_second_run_does_nothing(costs, place):
    chosen = replace(costs, methods={"dasp": costs.methods["dasp"]})
    assert files_of(chosen) == efficiency_files(chosen)
    (path,) = run_any(chosen, place, show=False)
    assert path.name in efficiency_files(chosen)
    content = read_result(path, FORMAT)
    assert content["cell"]["threads"] == 1
    assert len(content["measured"]["rounds"]) == content["cell"]["rounds"]
    calls = {(entry["call"], *entry["modalities"]) for entry in content["result"]["passes"]}
    assert calls == {
        ("encode", "audio"),
        ("encode", "video"),
        ("fuse", "audio"),
        ("fuse", "video"),
        ("fuse", "audio", "video"),
    }
    memory = content["measured"]["memory"]
    assert memory["peak_mib"] > memory["before_mib"] > 0
    before = path.stat().st_mtime_ns
    assert run_efficiency(chosen, place, show=False) == [path]
    assert path.stat().st_mtime_ns == before


def test_an_error_of_the_process_is_an_error_here(costs, place, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import os\nimport dasp\nfrom dasp.methods import Source\n"
        "class Lost(Source):\n    def step(self, batch):\n        os._exit(3)\n"
    )
    chosen = replace(costs, methods={"lost": Entry(f"{broken}:Lost")})
    with pytest.raises(DataError, match="lost on small ended early, with exit code 3"):
        run_efficiency(chosen, place, show=False)
    assert not list(place.results.glob("*.json"))


def test_settings_are_checked_before_anything_starts(costs, place, monkeypatch):
    monkeypatch.setattr(efficiency, "fill_store", None)
    wrong = replace(costs, methods={"dasp": Entry("dasp", {"detla": 1.0})})
    with pytest.raises(OptionError, match="delta"):
        run_efficiency(wrong, place, show=False)


def test_measurements_are_not_mistaken_for_runs(costs):
    cells, items = costs.cells(), measurements(replace(costs, clean_after=8))
    assert len(items) == len(cells) == 3
    assert not {cell.key for cell in cells} & {item.key for item in items}
    assert all(item.filename.startswith("efficiency-interleaved-5-") for item in items)
    assert 1 + 2 * items[0].rounds == STREAMS


def test_the_peak_begins_anew():
    if resident_mib() is None:
        pytest.skip("this system does not tell what a process holds")
    block = bytearray(b"x") * (64 << 20)
    assert peak_mib() >= resident_mib() >= 64
    high = peak_mib()
    del block
    forget_peak()
    assert peak_mib() <= high
