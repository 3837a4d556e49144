"""The command itself: many clients, kill -9, and a replay that gives the same answers."""

import signal
import threading

import pytest
import torch
from safetensors.torch import save_file

import dasp
from dasp.cli.main import main
from dasp.core.errors import OptionError
from dasp.serve import find_token
from dasp.serve.journal import read_records, segments
from dasp.serve.worker import turns

MODEL = """
from dasp.models import Toy

def build():
    return Toy(embed_dim=8, num_classes=3, seed=1)
"""


def test_nothing_is_lost_or_learnt_twice_when_the_server_is_killed_under_load(
    program, stream, alike, wait_until, capsys
):
    (program.folder / "mine.py").write_text(MODEL)
    program.start("--window", "5", "--samples", "16")
    batches, said, faults = stream(48), {}, []

    def call(start):
        with program.client() as client:
            for place in range(start, 48, 6):
                try:
                    said[place] = client(batches[place], request_id=f"r{place}").logits
                except Exception as error:
                    faults.append(error)

    callers = [threading.Thread(target=call, args=(start,)) for start in range(6)]
    for one in callers:
        one.start()
    wait_until(lambda: len(said) >= 15)
    program.kill()
    program.start("--window", "5", "--samples", "16")
    for one in callers:
        one.join(240)
    assert (faults, len(said)) == ([], 48)
    assert program.kill(signal.SIGTERM) in (0, -signal.SIGTERM)

    written, last = {}, segments(program.folder / "served")[-1]
    assert [record.kind for record in read_records(last.records)] == ["begin"]  # a checkpoint
    for segment in segments(program.folder / "served"):
        for batch, _, answer in turns(read_records(segment.records)):
            rows = answer.tensors["logits"].split([r["size"] for r in batch.facts["requests"]])
            for about, own in zip(batch.facts["requests"], rows, strict=True):
                assert about["id"] not in written, "a request was learnt twice"
                written[about["id"]] = own
    assert all(alike(written[f"r{place}"], said[place]) for place in range(48))
    log = dasp.events.read(program.folder / "served" / "events.jsonl")
    numbers = [event["batch"] for event in log if event["event"] == "batch"]
    assert numbers == list(range(len(numbers)))

    assert main(["replay", str(program.folder / "served")]) == 0
    assert "48 requests" in capsys.readouterr().out


def test_a_stream_is_not_continued_with_other_settings(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dasp.serve.serve", lambda *_, **__: None)
    words = ["serve", "--model", "mine.py:build"]
    assert main(words) == 0
    assert main(words) == 0
    assert main([*words, "--method", "tent"]) == 2
    assert "method 'dasp', now 'tent'" in capsys.readouterr().err.replace("\n", " ")
    assert main([*words, "--set", "lr"]) == 2
    assert main(["replay", "elsewhere"]) == 2
    assert main([*words, "--device", "gpu", "--folder", "other"]) == 2
    assert "--device is one of auto" in capsys.readouterr().err.replace("\n", " ")


def test_a_token_is_drawn_once_and_only_its_owner_reads_it(tmp_path, monkeypatch):
    monkeypatch.delenv("DASP_TOKEN", raising=False)
    token = find_token(tmp_path / "served")
    assert len(token) >= 24
    assert find_token(tmp_path / "served") == token
    assert (tmp_path / "served" / "token").stat().st_mode & 0o077 == 0
    monkeypatch.setenv("DASP_TOKEN", "short")
    with pytest.raises(OptionError, match="longer"):
        find_token(tmp_path)
    monkeypatch.setenv("DASP_TOKEN", "long enough, I think")
    assert find_token(tmp_path) == "long enough, I think"


def test_a_saved_state_is_what_a_new_server_begins_with(stream, tmp_path, make, monkeypatch):
    batches, alone, begun = stream(2), make(), []
    alone(batches[0])
    alone.save(tmp_path / "mine.safetensors")
    (tmp_path / "mine.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dasp.serve.serve", lambda tta, *_, **__: begun.append(tta))
    words = ["serve", "--model", "mine.py:build", "--set", "lr=1e-2"]
    assert main([*words, "--state", "mine.safetensors"]) == 0
    assert torch.equal(begun[0](batches[1]).logits, alone(batches[1]).logits)


def test_clean_samples_fit_the_method(stream, tmp_path, monkeypatch):
    (batch,), begun = stream(1), []
    save_file({name: value.repeat(20, 1, 1) for name, value in batch.items()}, tmp_path / "clean")
    (tmp_path / "mine.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dasp.serve.serve", lambda tta, *_, **__: begun.append(tta))
    words = ["serve", "--model", "mine.py:build", "--method", "eata", "--fit"]
    assert main([*words, "clean"]) == 0
    assert begun[0].method.fitted
    assert main([*words, "mine.py", "--folder", "other"]) == 2
