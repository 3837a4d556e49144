import multiprocessing
import os
import signal
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
from PIL import Image

from dasp.core.errors import DataError, OptionError
from dasp.core.progress import with_bar
from dasp.data import ClipDataset, Loader, open_manifest
from dasp.data.loading import run_jobs


@pytest.fixture
def pets(tmp_path, media):
    return media.write_folders(tmp_path / "pets", per_class=3)


@pytest.fixture
def clips(pets):
    return ClipDataset(open_manifest(pets))


@pytest.fixture
def seen(tmp_path):
    """A directory in which each sample or job that is begun leaves a file, with its process."""
    folder = tmp_path / "seen"
    folder.mkdir()
    return folder


@pytest.fixture
def watched(clips, seen, monkeypatch):
    read = ClipDataset.__getitem__

    def noted(self, index):
        (seen / f"{index}").write_text(str(os.getpid()))
        return read(self, index)

    monkeypatch.setattr(ClipDataset, "__getitem__", noted)
    return clips


def wait_for(condition, seconds=20):
    """Return whether a condition came true in time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(condition())


def begun(folder, count):
    return wait_for(lambda: len(list(folder.iterdir())) >= count)


def alive(process):
    """Return whether a process runs; one that has ended may wait for somebody to take notice."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_a_sample_is_what_a_model_takes(pets, clips):
    sample = clips[3]
    assert sample.inputs["audio"].shape == (1024, 128)
    assert sample.inputs["video"].shape == (3, 224, 224)
    assert {value.dtype for value in sample.inputs.values()} == {torch.float32}
    assert (sample.label, sample.id) == (1, "dog/dog0")
    (pets / "cat" / "cat0.wav").write_bytes(b"")
    assert set(ClipDataset(clips.manifest, modalities=("video",))[0].inputs) == {"video"}


def test_impossible_options(clips):
    for options in ({"on_bad": "ignore"}, {"batch_size": 0}, {"workers": -1}):
        with pytest.raises(OptionError):
            Loader(clips, **options)
    with pytest.raises(OptionError, match="modalities"):
        ClipDataset(clips.manifest, modalities=("smell",))


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_change_no_bit_and_no_batch_and_keep_no_file_handle(clips, workers):
    state = torch.random.get_rng_state()
    here, there = list(Loader(clips, 4)), list(Loader(clips, 4, workers))
    assert [batch.ids for batch in there] == [batch.ids for batch in here]
    assert [len(batch.ids) for batch in here] == [4, 2]
    assert torch.equal(torch.random.get_rng_state(), state)
    for ours, theirs in zip(here, there, strict=True):
        assert torch.equal(ours.labels, theirs.labels)
        assert all(torch.equal(ours.inputs[m], theirs.inputs[m]) for m in ("audio", "video"))
    handles = len(list(Path("/proc/self/fd").iterdir()))
    kept = [batch for _ in range(3) for batch in Loader(clips, 1, workers)]
    assert len(kept) == 18
    assert len(list(Path("/proc/self/fd").iterdir())) < handles + 9  # not one per tensor


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_file_is_named_or_left_out_counted_and_listed(pets, clips, workers):
    Image.new("P", (32, 32)).save(pets / "cat" / "cat1.png")
    with pytest.raises(DataError, match=r"clip 'cat/cat1': .*cat1\.png has colour mode P"):
        list(Loader(clips, 4, workers))
    loader = Loader(clips, 3, workers, on_bad="skip")
    for _ in range(2):  # counted anew in each pass
        first, second = (batch.ids for batch in loader)
        assert first + second == ["cat/cat0", "cat/cat2", "dog/dog0", "dog/dog1", "dog/dog2"]
        assert len(first) == 3
        assert [s.id for s in loader.skipped] == ["cat/cat1"]
        assert "cat1.png has colour mode P" in loader.skipped[0].reason


def test_workers_keep_two_batches_ready_and_no_more(watched, seen):
    batches = iter(Loader(watched, 1, workers=1))
    next(batches)
    assert begun(seen, 3)
    assert not wait_for(lambda: len(list(seen.iterdir())) > 3, seconds=0.3)
    batches.close()


@contextmanager
def in_group(function):
    """Run a function in a process group of its own, which takes Ctrl-C as a terminal sends it."""

    def target():
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        function()

    process = multiprocessing.get_context("fork").Process(target=target)
    process.start()
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()


@pytest.mark.parametrize("how", ["close", signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("kind", ["batches", "jobs"])
def test_no_worker_outlives_its_reader(watched, seen, how, kind):
    def job(number):
        (seen / str(number)).write_text(str(os.getpid()))
        time.sleep(60 if number else 0)

    def read():
        source = Loader(watched, 2, 2) if kind == "batches" else run_jobs(job, range(9), 2)
        items = iter(source)
        next(items)
        begun(seen, 3)
        if how == "close":
            items.close()
        for _ in items:
            time.sleep(60)

    with in_group(read) as process:
        assert begun(seen, 3)
        if how == signal.SIGKILL:
            process.kill()  # the reader alone
        elif how == signal.SIGINT:
            time.sleep(0.2)
            os.killpg(process.pid, signal.SIGINT)
        process.join(timeout=20)  # three seconds on an idle machine
        assert not process.is_alive()
        workers = {int(path.read_text() or process.pid) for path in seen.iterdir()}
        assert wait_for(lambda: not any(map(alive, workers)))


def test_jobs_come_back_in_order_with_any_number_of_workers(capsys):
    for workers in (0, 1, 3):
        results = with_bar(run_jobs(abs, [-3, -1, -2], workers), 3, "abs", show=True)
        assert list(results) == [3, 1, 2]
    assert "3/3" in capsys.readouterr().err
    assert list(run_jobs(abs, [])) == []


def test_a_job_that_fails_or_ends_its_worker_is_an_error():
    with pytest.raises(ZeroDivisionError):
        list(run_jobs((1).__truediv__, [1, 0, 2], 2))
    with pytest.raises(RuntimeError, match="terminated abruptly"):
        list(run_jobs(os._exit, [3, 3], 1))
