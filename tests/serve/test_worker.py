import json
import weakref

import pytest
import torch

from dasp.core.errors import InputError, OptionError, StateError
from dasp.methods.state import read_state
from dasp.serve import replay
from dasp.serve.journal import Journal, Record, read_records, segments
from dasp.serve.worker import OVERHEAD, BusyError, ConflictError, run_again


def logits(answer):
    return torch.tensor(json.loads(answer)["logits"])


def sizes(folder):
    """The samples of each request, by batch, in the order of the journal."""
    batches = [
        record.facts["requests"]
        for segment in segments(folder)
        for record in read_records(segment.records)
        if record.kind == "batch"
    ]
    return [[one["size"] for one in batch] for batch in batches]


def test_requests_that_wait_are_one_batch_and_learn_what_one_batch_would(
    open_worker, make, gate, stream, wait_until
):
    batches = stream(5)
    worker = open_worker(make(gate), samples=16, window=0)
    gate.open.clear()
    first = worker.submit(batches[0])
    wait_until(lambda: not worker.health()["waiting"])
    others = [worker.submit(one) for one in batches[1:]]
    gate.open.set()
    answers = [one.result(120) for one in [first, *others]]
    assert sizes(worker.journal.folder) == [[4], [4, 4, 4, 4]]
    alone = make()
    joined = {name: torch.cat([one[name] for one in batches[1:]]) for name in batches[0]}
    assert torch.equal(alone(batches[0]).logits, logits(answers[0]))
    assert torch.equal(alone(joined).logits, torch.cat([logits(a) for a in answers[1:]]))
    assert [json.loads(a)["batch"] for a in answers] == [0, 1, 1, 1, 1]


def test_a_window_waits_for_others_and_a_full_batch_does_not(open_worker, stream):
    batches = stream(5)
    worker = open_worker(samples=8, window=1000)
    waiting = [worker.submit(one) for one in batches]
    for one in waiting[:4]:
        one.result(120)
    assert sizes(worker.journal.folder) == [[4, 4], [4, 4]]
    assert not waiting[4].done()
    worker.close(120)  # it does not wait for the window
    assert waiting[4].done()


def test_only_requests_that_fit_together_are_joined_and_order_is_kept(
    open_worker, make, gate, stream
):
    worker = open_worker(make(gate), window=0)
    gate.open.clear()
    worker.submit(stream(1)[0])
    worker_batches = stream(4)
    spoilt = {name: value * torch.nan for name, value in worker_batches[2].items()}
    part = {"audio": worker_batches[1]["audio"]}
    sent = [worker_batches[0], part, spoilt, worker_batches[3]]
    waiting = [worker.submit(one) for one in sent] + [worker.submit(sent[0], learn=False)]
    gate.open.set()
    answers = [json.loads(one.result(120)) for one in waiting]
    numbers = [one["batch"] for one in answers]
    assert numbers == list(range(numbers[0], numbers[0] + 5))
    assert "NaN" in answers[2]["rejected"]
    assert answers[2]["logits"][0] == [None] * 3
    assert answers[2]["predictions"] == [None] * 4
    assert "frozen" in answers[4]["skipped"]


def test_one_that_the_model_fails_on_does_not_spoil_those_it_was_joined_with(
    open_worker, make, gate, stream
):
    good, bad = stream(2)
    bad = {name: value.clone() for name, value in bad.items()}
    bad["audio"][1, 0, 0] = 99
    worker = open_worker(make(gate), window=1000, samples=12)
    waiting = [worker.submit(good), worker.submit(bad, "mine"), worker.submit(good)]
    for place in (0, 2):
        assert json.loads(waiting[place].result(120))["predictions"]
    with pytest.raises(InputError, match="99 is not a value"):
        waiting[1].result(120)
    assert sizes(worker.journal.folder) == [[4, 4, 4], [4], [4], [4]]
    waiting = worker.submit(good, "mine", "another batch")  # a failed id is free again
    worker.close(120)
    assert waiting.result(0)
    report = replay(make(), worker.journal.folder)
    assert (report.errors, report.differing) == (2, ())


def test_what_does_not_fit_is_refused_before_it_waits(open_worker, make, gate, stream, wait_until):
    (batch,) = stream(1)
    worker = open_worker(make(gate), samples=4, waiting=1)
    with pytest.raises(InputError, match="unknown modality"):
        worker.submit({"radar": batch["audio"]})
    with pytest.raises(InputError, match="float64"):
        worker.submit({name: value.double() for name, value in batch.items()})
    with pytest.raises(OptionError, match="split it"):
        worker.submit({name: torch.cat([value, value]) for name, value in batch.items()})
    gate.open.clear()
    worker.submit(batch)
    wait_until(lambda: not worker.health()["waiting"])
    worker.submit(batch)
    with pytest.raises(BusyError, match="ask again"):
        worker.submit(batch)


def test_an_id_is_run_once_also_after_a_restart_and_names_one_batch(open_worker, stream):
    first, second = stream(2)
    worker = open_worker(checkpoint_every=1)
    answer = worker.submit(first, "a", "x").result(120)
    assert worker.submit(first, "a", "x").result(120) == answer
    with pytest.raises(ConflictError, match="id of its own"):
        worker.submit(second, "a", "y")
    assert worker.batches == 1
    worker.close()
    worker = open_worker()
    assert worker.submit(first, "a", "x").result(120) == answer
    assert worker.batches == 1


def test_answers_are_remembered_within_a_bound_and_without_what_waited_for_them(
    open_worker, stream, wait_until, monkeypatch
):
    first, second = stream(2)
    worker = open_worker(window=0)
    future = worker.submit(first, "a", "x")
    answer, alive = future.result(120), weakref.ref(future)
    del future
    wait_until(lambda: alive() is None)
    monkeypatch.setattr("dasp.serve.worker.REMEMBERED", len(answer) + OVERHEAD + 100)
    worker.submit(second, "b", "y").result(120)
    assert json.loads(worker.submit(second, "b", "y").result(120))["batch"] == 1
    assert json.loads(worker.submit(first, "a", "x").result(120))["batch"] == 2  # forgotten


def test_a_worker_continues_where_the_last_one_was(open_worker, make, stream):
    batches = stream(12)
    worker = open_worker(checkpoint_every=5, window=0)
    said = [worker.submit(one).result(120) for one in batches[:8]]
    # As if it were killed: the journal is all that is left.
    worker.journal.close()
    worker = open_worker(window=0)
    assert worker.batches == 8
    said += [worker.submit(one).result(120) for one in batches[8:]]
    alone = make()
    assert all(torch.equal(alone(b).logits, logits(a)) for b, a in zip(batches, said, strict=True))
    worker.close()
    assert replay(make(), worker.journal.folder).differing == ()


def test_a_batch_that_was_running_at_a_kill_is_run_once_more_and_then_skipped(
    open_worker, make, stream
):
    first, second, third = stream(3)
    worker = open_worker(window=0)
    worker.submit(first).result(120)
    worker.close()
    journal = Journal(worker.journal.folder)
    about = {"requests": [{"id": "b", "digest": "x", "size": 4}], "learn": True}
    journal.append("batch", about, second)
    journal.close()
    worker = open_worker(window=0)
    alone = make()
    alone(first)
    found = worker.submit(second, "b", "x")
    assert torch.equal(logits(found.result(120)), alone(second).logits)
    assert worker.batches == 2
    worker.close()
    journal = Journal(worker.journal.folder)
    journal.append("batch", about | {"requests": [{"id": "c", "digest": "x", "size": 4}]}, third)
    journal.append("again", {})
    journal.close()
    worker = open_worker(window=0)
    assert worker.batches == 3
    report = replay(make(), worker.journal.folder)
    assert (report.errors, report.unanswered, report.differing) == (1, 0, ())
    assert torch.equal(logits(worker.submit(third, "c", "x").result(120)), alone(third).logits)


def test_a_record_that_a_kill_has_cut_is_removed_and_a_damaged_one_is_named(open_worker, stream):
    batches = stream(3)
    worker = open_worker(window=0)
    for one in batches[:2]:
        worker.submit(one).result(120)
    records = worker.journal.last.records
    worker.journal.close()
    records.write_bytes(records.read_bytes()[:-20])  # of the second answer
    worker = open_worker(window=0)
    assert worker.batches == 2
    worker.submit(batches[2]).result(120)
    worker.journal.close()
    data = bytearray(records.read_bytes())
    data[len(data) // 2] ^= 1
    records.write_bytes(data)
    with pytest.raises(Exception, match=r"record at byte \d+ is damaged"):
        open_worker()


def test_a_full_disk_costs_no_prediction_and_teaches_nothing(
    open_worker, make, stream, monkeypatch
):
    first, second, third = stream(3)
    worker = open_worker(window=0)
    worker.submit(first).result(120)
    with monkeypatch.context() as patch:
        patch.setattr("os.write", lambda *_: 0)
        answer = json.loads(worker.submit(second, "b").result(120))
    assert "free space" in answer["skipped"]
    assert answer["batch"] is None
    assert worker.write_errors == 1
    alone = make()
    alone(first)
    assert torch.equal(logits(worker.submit(third).result(120)), alone(third).logits)


def test_states_are_taken_back_reset_and_replaced_and_the_replay_follows(
    open_worker, make, stream, tmp_path
):
    batches = stream(9)
    worker = open_worker(window=0, checkpoint_every=3)
    for one in batches[:6]:
        worker.submit(one).result(120)
    worker.between(lambda: None).result(120)
    kept = [one.number for one in segments(worker.journal.folder)]
    assert kept == [0, 1, 2]
    assert worker.roll_back(1).result(120) == 1
    alone = make()
    for one in batches[:3]:
        alone(one)
    alone.save(tmp_path / "mine.safetensors")
    assert torch.equal(logits(worker.submit(batches[6]).result(120)), alone(batches[6]).logits)
    worker.reset().result(120)
    assert torch.equal(logits(worker.submit(batches[7]).result(120)), make()(batches[7]).logits)
    worker.load_state(read_state(tmp_path / "mine.safetensors")).result(120)
    alone.load(tmp_path / "mine.safetensors")
    assert torch.equal(logits(worker.submit(batches[8]).result(120)), alone(batches[8]).logits)
    with pytest.raises(StateError, match="choose one of"):
        worker.roll_back(99).result(120)
    with pytest.raises(StateError, match="not a saved state"):
        worker.load_state({"format": "odd"}).result(120)
    worker.close()
    report = replay(make(), worker.journal.folder)
    assert (report.batches, report.differing) == (9, ())


def test_a_replay_finds_what_was_changed(open_worker, make, stream):
    worker = open_worker(window=0)
    for one in stream(4):
        worker.submit(one).result(120)
    worker.close()
    other = make(steps=2)
    report = replay(other, worker.journal.folder)
    assert len(report.differing) > 1
    assert "differ" in str(report)


def test_the_order_of_sensors_in_a_file_changes_no_answer(open_worker, make, stream):
    batches = [*stream(3), {n: v * torch.nan for n, v in stream(1)[0].items()}]
    worker = open_worker(window=0)
    for one in batches:
        worker.submit(dict(reversed(one.items()))).result(120)
    worker.close()
    records = list(read_records(segments(worker.journal.folder)[0].records))[1:]
    for names in (["audio", "video"], ["video", "audio"]):
        tta = make()
        for batch, answer in zip(records[::2], records[1::2], strict=True):
            ordered = {name: batch.tensors[name] for name in names}
            assert run_again(tta, Record("batch", batch.facts, ordered), answer)


def test_only_the_last_checkpoints_are_kept_and_one_server_has_a_journal(open_worker, stream):
    worker = open_worker(window=0, checkpoint_every=1, keep=2)
    for one in stream(5):
        worker.submit(one).result(120)
    with pytest.raises(StateError, match="in use"):
        Journal(worker.journal.folder)
    worker.close()
    assert len(segments(worker.journal.folder)) == 2
    assert len(list(worker.journal.folder.glob("*.safetensors"))) == 2


def test_a_hung_model_and_an_ended_worker_are_noticed(open_worker, make, gate, stream, wait_until):
    worker = open_worker(make(gate), hang=0.05)
    assert worker.health()["problem"] is None
    gate.open.clear()
    future = worker.submit(stream(1)[0])
    wait_until(lambda: worker.health()["problem"])
    assert "restart the server" in worker.health()["problem"]
    gate.open.set()
    future.result(120)
    wait_until(lambda: worker.health()["problem"] is None)
    worker.close()
    assert "has ended" in worker.health()["problem"]
    with pytest.raises(BusyError, match="shutting down"):
        worker.submit(stream(1)[0])
