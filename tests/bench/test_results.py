"""What a run is known by, and how its result is kept: whole, once, and named if damaged."""

import gzip
import json
import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from dasp.bench import results
from dasp.bench.results import (
    PlanRecord,
    Result,
    RunConfig,
    claimed,
    finished,
    is_done,
    pack,
    read_folder,
    read_plans,
    write_plan,
    write_result,
)
from dasp.core.errors import DaspError, DataError, InputError

RUN = RunConfig(
    data={"name": "shapes", "samples": 9, "seed": 0},
    model={"name": "small", "digest": "00ff"},
    method="dasp",
    versions={"method": ["Dasp 1"], "loop": 1},
    options={"lr": 1e-3, "steps": 1},
    protocol="interleaved",
    severity=5,
    domains={"video/fog/5": "ab", "audio/rain/5": "cd"},
    visits=2,
    seed=0,
    batch_size=8,
)
OTHERS = {
    "data": {"name": "shapes", "samples": 9, "seed": 1},
    "model": {"name": "small", "digest": "11ff"},
    "method": "tent",
    "versions": {"method": ["Dasp 2"], "loop": 1},
    "options": {"lr": 1e-3, "steps": 2},
    "protocol": "mixed",
    "severity": 4,
    "domains": {"audio/rain/5": "cd", "video/fog/5": "ab"},
    "visits": 40,
    "seed": 1,
    "batch_size": 9,
    "clean_after": 8,
    "source": {"name": "shapes", "samples": 32},
    "tokens": "float16",
    "corruptions": ["fog", "rain"],
    "cost": {"rounds": 5, "threads": 1},
}
DECIDED_BY_DOMAINS = {"severity", "corruptions"}


def result(seed=0, right=5):
    """Nine samples of one domain in two batches, of which some are right."""
    hits = np.packbits(np.arange(9) < right).tobytes().hex()
    domain = results.DomainCount("video/fog/5", right, 9, first_batch=0, batches=2, hits=hits)
    batches = results.BatchCounts([right, 0], [8, 1], [True, True], [None, None], None, None)
    counts = results.Counts(round(100 * right / 9, 4), right, 9, [domain], batches, 2, 0)
    return Result(replace(RUN, seed=seed), counts, {"finished": "now"})


@given(some.sets(some.sampled_from(sorted(OTHERS))), some.sets(some.sampled_from(sorted(OTHERS))))
def test_runs_share_a_key_only_if_all_that_decides_them_is_equal(one, two):
    assert set(OTHERS) == {field.name for field in fields(RunConfig)}
    first, second = (replace(RUN, **{n: OTHERS[n] for n in names}) for names in (one, two))
    assert (first.key == second.key) == (one - DECIDED_BY_DOMAINS == two - DECIDED_BY_DOMAINS)
    if first.key != second.key:
        assert first.filename != second.filename


def test_a_key_is_the_same_tomorrow_and_after_a_file():
    # Another schema makes every result stale: change it knowingly.
    assert RUN.key == "c7af1f99b38a318b"
    unusual = replace(RUN, options={"sizes": (1, 2), "folder": Path("a"), "rate": 1e-17})
    read = RunConfig(**json.loads(json.dumps(asdict(unusual), default=str)))
    assert read.key == unusual.key
    assert results.digest({"a": 1, "b": [2]}) == results.digest({"b": [2], "a": 1})


def test_names_are_readable_short_and_no_part_of_a_key():
    own = replace(RUN, method="here/mine.py:Mine", model=RUN.model | {"name": "another"})
    assert own.key == replace(own, method="/else/where/mine.py:Mine", model=RUN.model).key
    assert own.key != replace(own, method="here/mine.py:Other").key
    assert RUN.filename == f"stream-interleaved-dasp-small-{RUN.key}.json"
    deep = replace(RUN, method="/" + "long/" * 60 + "mine.py:Mine", cost=OTHERS["cost"])
    assert deep.filename.startswith("cost-interleaved-")
    assert "mine.py_Mine" in deep.filename
    assert len(deep.filename) < 200


DOMAIN, BATCHES = asdict(result().counts.domains[0]), asdict(result().counts.batches)


@pytest.mark.parametrize(
    "change",
    [
        {"right": 4},
        {"seen": 10},
        {"seen": 0},
        {"accuracy": 55.0},
        {"domains": []},
        *({"domains": [DOMAIN | bad]} for bad in ({"hits": "ff80"}, {"hits": "f800ff"})),
        {"domains": [DOMAIN | {"first_batch": 1}]},
        *({"batches": BATCHES | bad} for bad in ({"updated": [True]}, {"scores": {"a": [0.5]}})),
        {"clean_after": {"seen": 8, "joint": [1, 2, 3]}},
    ],
)
def test_counts_that_contradict_each_other_are_refused(change):
    content = result().as_dict()
    assert Result.from_dict(content).counts.domains[0].sample_hits(9).tolist() == [1] * 5 + [0] * 4
    content["counts"] |= change
    with pytest.raises(InputError, match="contradict each other"):
        Result.from_dict(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "dasp-result-2"}, "not a result of format dasp-result-3"),
        ({"run": {**asdict(RUN), "seed": 7}}, "does not match its settings"),
        ({"run": {"seed": 7}}, "missing or of the wrong type"),
        ({"counts": {"accuracy": 5.0}}, "missing or of the wrong type"),
        ({"counts": 3}, "missing or of the wrong type"),
        ({"measured": None}, "missing or of the wrong type"),
    ],
)
def test_a_damaged_result_says_what_is_wrong(change, message):
    with pytest.raises(InputError, match=message):
        Result.from_dict(result().as_dict() | change)
    with pytest.raises(InputError, match="not a result"):
        Result.from_dict([1])


def packed_lines(folder):
    return gzip.decompress((folder / "runs.jsonl.gz").read_bytes()).decode().splitlines()


def pack_lines(folder, lines):
    (folder / "runs.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))


def loose(folder):
    return sorted(path.name for path in (folder / "runs").glob("*"))


def test_results_are_packed_into_one_file_of_the_same_bytes(tmp_path):
    every = [result(seed) for seed in range(4)]
    for name, order in (("one", [0, 1, 2, 3]), ("two", [3, 1, 0, 2])):
        folder = tmp_path / name
        for place in order:
            write_result(folder, every[place])
            if place == 1:
                pack(folder)
        pack(folder)
        assert loose(folder) == []
        assert read_folder(folder).results == {r.run.key: r for r in every}
    one, two = (pack(tmp_path / name).read_bytes() for name in ("one", "two"))
    assert one == two
    keys = [json.loads(line)["key"] for line in packed_lines(tmp_path / "one")]
    assert keys == sorted(r.run.key for r in every)


def test_a_damaged_file_is_named_kept_and_made_again(tmp_path):
    write_result(tmp_path, result(0))
    path = write_result(tmp_path, result(1))
    path.write_text(path.read_text()[:100])
    found = read_folder(tmp_path)
    assert list(found.results) == [result(0).run.key]
    assert path.name in found.warnings[0]
    assert not is_done(tmp_path, result(1).run)
    pack(tmp_path)
    assert loose(tmp_path) == [path.name]
    write_result(tmp_path, result(1))
    pack(tmp_path)
    assert loose(tmp_path) == []
    assert set(finished(tmp_path)) == {result(0).run.key, result(1).run.key}


def test_a_damaged_line_is_named_kept_and_made_again(tmp_path):
    newer = result(1).as_dict() | {"format": "dasp-result-4"}
    broken = json.dumps(result(2).as_dict())[:50]
    pack_lines(tmp_path, [json.dumps(result(0).as_dict()), json.dumps(newer), broken])
    found = read_folder(tmp_path)
    assert list(found.results) == [result(0).run.key]
    for warning, line in zip(found.warnings, (2, 3), strict=True):
        assert warning.startswith(f"runs.jsonl.gz, line {line}, was left out")
    write_result(tmp_path, result(3))
    pack(tmp_path)
    assert packed_lines(tmp_path)[2:] == [json.dumps(newer), broken]  # nobody's work is lost
    write_result(tmp_path, result(1))
    pack(tmp_path)
    assert packed_lines(tmp_path)[3:] == [broken]
    assert set(finished(tmp_path)) == {result(seed).run.key for seed in (0, 1, 3)}


@pytest.mark.parametrize("damage", ["cut", "bits", "text"])
def test_a_packed_file_that_cannot_be_read_is_named(tmp_path, damage):
    for seed in range(20):
        write_result(tmp_path, result(seed))
    path = pack(tmp_path)
    whole = path.read_bytes()
    place = slice(len(whole) // 2, len(whole) // 2 + 9)
    flipped = bytearray(whole)
    flipped[place] = bytes(255 - byte for byte in whole[place])
    path.write_bytes({"cut": whole[:-20], "bits": flipped, "text": b"{}"}[damage])
    for ask in (read_folder, finished, lambda folder: is_done(folder, RUN)):
        with pytest.raises(DaspError, match=r"runs\.jsonl\.gz is damaged .* restore it"):
            ask(tmp_path)


def test_results_of_some_keys_are_removed(tmp_path):
    for seed in range(4):
        write_result(tmp_path, result(seed))
        if seed == 1:
            pack(tmp_path)
    keys = [result(seed).run.key for seed in range(4)]
    pack(tmp_path, without={keys[0], keys[2]})  # one of the packed ones, one of the single ones
    assert list(finished(tmp_path)) == sorted([keys[1], keys[3]])
    assert loose(tmp_path) == []


def test_folders_without_results_are_refused(tmp_path):
    with pytest.raises(InputError, match="is not a directory"):
        read_folder(tmp_path / "nowhere")
    with pytest.raises(InputError, match="holds no results: make some"):
        read_folder(tmp_path)
    write_result(tmp_path, result()).write_text("{")
    with pytest.raises(InputError, match=r"holds no results \(runs/.*json was left out"):
        read_folder(tmp_path)
    assert (
        set(finished(tmp_path)) == set(finished(tmp_path / "nowhere")) == set()
    )  # so a plan can run


def test_a_run_is_done_wherever_and_under_whatever_name_its_result_lies(tmp_path):
    run = replace(RUN, model=RUN.model | {"name": "another"}, method="dasp")
    assert not is_done(tmp_path, run)
    write_result(tmp_path, result())
    assert is_done(tmp_path, run)
    pack(tmp_path)
    assert is_done(tmp_path, run)
    assert not is_done(tmp_path, result(1).run)
    write_result(tmp_path, result(1))
    pack(tmp_path)  # what was read of the packed file before is not trusted any more
    assert is_done(tmp_path, result(1).run)


@pytest.mark.parametrize("moment", ["before", "between"])
def test_a_reader_misses_nothing_that_is_packed_meanwhile(tmp_path, monkeypatch, moment):
    """Packed after the names were listed, or after the single files were read."""
    write_result(tmp_path, result(0))
    pack(tmp_path)
    write_result(tmp_path, result(1))
    name = "read_text" if moment == "before" else "exists"
    original = getattr(Path, name)

    def first_pack(path, *given, **more):
        monkeypatch.setattr(Path, name, original)
        pack(tmp_path)
        return original(path, *given, **more)

    monkeypatch.setattr(Path, name, first_pack)
    assert set(finished(tmp_path)) == {result(0).run.key, result(1).run.key}
    assert loose(tmp_path) == []


@pytest.mark.parametrize("moment", ["writing", "removing"])
def test_packing_that_is_stopped_loses_nothing(tmp_path, monkeypatch, moment):
    every = {result(seed).run.key for seed in range(3)}
    for seed in range(3):
        write_result(tmp_path, result(seed))
    with monkeypatch.context() as patched:
        owner, name = (gzip.GzipFile, "writelines") if moment == "writing" else (Path, "unlink")
        patched.setattr(owner, name, stop)
        with pytest.raises(RuntimeError, match="power cut"):
            pack(tmp_path)
    assert set(finished(tmp_path)) == every
    pack(tmp_path)
    assert loose(tmp_path) == []
    assert set(finished(tmp_path)) == every


def stop(*_, **__):
    raise RuntimeError("power cut")


def hold(folder, ready):
    with claimed(folder, "key") as mine:
        ready.put(mine)
        signal.pause()


def test_a_claim_excludes_others_and_ends_with_its_process(tmp_path):
    context = multiprocessing.get_context("fork")
    ready = context.SimpleQueue()
    process = context.Process(target=hold, args=(tmp_path, ready))
    process.start()
    assert ready.get() is True
    with claimed(tmp_path, "key") as mine, claimed(tmp_path, "other") as other:
        assert (mine, other) == (False, True)
    os.kill(process.pid, signal.SIGKILL)
    with claimed(tmp_path, "key", wait=True) as mine:
        assert mine
    process.join()


def record(name, title="Title"):
    return PlanRecord(name, title, "about", ["comparison"], "dasp bench", [("dasp", RUN.key)])


def test_plans_are_kept_in_the_order_of_their_first_run(tmp_path):
    assert read_plans(tmp_path) == []
    for plan in (record("b"), record("a"), record("b", "Again")):
        write_plan(tmp_path, plan)
    assert read_plans(tmp_path) == [record("b", "Again"), record("a")]
    with ThreadPoolExecutor() as pool:  # a record that is written meanwhile is not lost
        list(pool.map(lambda name: write_plan(tmp_path, record(str(name))), range(20)))
    assert len(read_plans(tmp_path)) == 22
    (tmp_path / "plans.json").write_text('[{"name": "a"}]')
    with pytest.raises(DataError, match=r"plans\.json is damaged"):
        read_plans(tmp_path)
