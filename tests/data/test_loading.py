import time

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


def test_a_sample_is_what_a_model_takes(pets):
    sample = ClipDataset(open_manifest(pets))[3]
    assert sample.inputs["audio"].shape == (1024, 128)
    assert sample.inputs["video"].shape == (3, 224, 224)
    assert {value.dtype for value in sample.inputs.values()} == {torch.float32}
    assert (sample.label, sample.id) == (1, "dog/dog0")
    (pets / "cat" / "cat0.wav").write_bytes(b"")
    assert set(ClipDataset(open_manifest(pets), modalities=("video",))[0].inputs) == {"video"}


def test_impossible_options(pets):
    dataset = ClipDataset(open_manifest(pets))
    for options in ({"on_bad": "ignore"}, {"batch_size": 0}, {"workers": -1}):
        with pytest.raises(OptionError):
            Loader(dataset, **options)
    with pytest.raises(OptionError, match="modalities"):
        ClipDataset(open_manifest(pets), modalities=("smell",))


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_change_no_bit_and_no_batch(pets, workers):
    dataset, state = ClipDataset(open_manifest(pets)), torch.random.get_rng_state()
    here, there = list(Loader(dataset, 4)), list(Loader(dataset, 4, workers))
    assert [batch.ids for batch in there] == [batch.ids for batch in here]
    assert [len(batch.ids) for batch in here] == [4, 2]
    assert torch.equal(torch.random.get_rng_state(), state)
    for ours, theirs in zip(here, there, strict=True):
        assert torch.equal(ours.labels, theirs.labels)
        assert all(torch.equal(ours.inputs[m], theirs.inputs[m]) for m in ("audio", "video"))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_file_is_an_error_that_names_it(pets, workers):
    (pets / "cat" / "cat2.wav").write_bytes(b"")
    with pytest.raises(DataError, match=r"clip 'cat/cat2': .*cat2\.wav"):
        list(Loader(ClipDataset(open_manifest(pets)), 4, workers))


@pytest.mark.parametrize("workers", [0, 2])
def test_skipped_clips_are_left_out_counted_and_listed(pets, workers):
    Image.new("P", (32, 32)).save(pets / "cat" / "cat1.png")
    loader = Loader(ClipDataset(open_manifest(pets)), 3, workers, on_bad="skip")
    for _ in range(2):  # counted anew in each pass
        batches = list(loader)
        first, second = (batch.ids for batch in batches)
        assert first + second == ["cat/cat0", "cat/cat2", "dog/dog0", "dog/dog1", "dog/dog2"]
        assert len(first) == 3
        assert [s.id for s in loader.skipped] == ["cat/cat1"]
        assert "cat1.png has colour mode P" in loader.skipped[0].reason


def test_jobs_come_back_in_order_with_any_number_of_workers(capsys):
    for workers in (0, 1, 3):
        results = with_bar(run_jobs(abs, [-3, -1, -2], workers), 3, "abs", show=True)
        assert list(results) == [3, 1, 2]
    assert "3/3" in capsys.readouterr().err
    assert list(run_jobs(abs, [])) == []


def wait_for(path, count):
    for _ in range(1000):
        if len(list(path.iterdir())) >= count:
            return True
        time.sleep(0.01)
    return False


def test_workers_go_on_while_a_batch_is_used(pets, tmp_path, monkeypatch):
    seen = tmp_path / "seen"
    seen.mkdir()
    read = ClipDataset.__getitem__

    def noted(self, index):
        (seen / str(index)).touch()
        return read(self, index)

    monkeypatch.setattr(ClipDataset, "__getitem__", noted)
    batches = iter(Loader(ClipDataset(open_manifest(pets)), 2, workers=1))
    next(batches)
    assert wait_for(seen, 6)  # all of them, though one batch was asked for
    batches.close()


@pytest.mark.parametrize(("ahead", "made"), [(0, 8), (5, 8), (12, 12)])
def test_so_many_results_wait_and_no_more(tmp_path, ahead, made):
    def touch(number):
        (tmp_path / str(number)).touch()
        return number

    results = run_jobs(touch, range(30), 1, ahead)
    assert next(results) == 0
    assert wait_for(tmp_path, made)
    assert len(list(tmp_path.iterdir())) == made
    assert next(results) == 1
    assert wait_for(tmp_path, made + 1)
    results.close()
