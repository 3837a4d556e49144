import pytest
import torch
from torch import nn

import dasp
from dasp.core.errors import DataError, OptionError
from dasp.models import Toy, from_pretrained, push_to_hub, save_pretrained


def test_a_model_and_what_it_has_learnt_come_back(tmp_path, toy, batches):
    tta = dasp.adapt(toy, "dasp", lr=1e-2)
    for batch in batches:
        tta(batch)
    save_pretrained(toy, tmp_path / "mine", tta)
    model, state = from_pretrained(tmp_path / "mine")
    other = dasp.adapt(model, "dasp", lr=1e-2)
    other.load(state)
    assert torch.equal(other(batches[1]).logits, tta(batches[1]).logits)
    assert "Modalities: audio, video" in (tmp_path / "mine" / "README.md").read_text()
    save_pretrained(Toy(seed=2), tmp_path / "plain")
    assert from_pretrained(tmp_path / "plain")[1] is None


def test_an_upload_sends_the_directory_that_from_pretrained_reads(tmp_path, toy, monkeypatch):
    hub, sent = pytest.importorskip("huggingface_hub"), {}

    class Api:
        def create_repo(self, name, **options):
            sent.update(name=name, **options)
            return f"https://hub/{name}"

        def upload_folder(self, **options):
            sent.update(options)

    monkeypatch.setattr(hub, "HfApi", Api)
    address = push_to_hub(toy, "me/toy", tmp_path / "toy", private=True)
    assert (address, sent["private"], sent["repo_id"]) == ("https://hub/me/toy", True, "me/toy")
    monkeypatch.setattr(hub, "snapshot_download", lambda name: sent["folder_path"])
    model, _ = from_pretrained("me/toy")
    assert all(map(torch.equal, model.state_dict().values(), toy.state_dict().values()))


def test_what_cannot_be_shared_or_found_is_named(tmp_path, monkeypatch):
    with pytest.raises(OptionError, match="Linear is not a model of this package"):
        save_pretrained(nn.Linear(1, 1), tmp_path)
    hub = pytest.importorskip("huggingface_hub")

    def fail(name):
        raise OSError("offline")

    monkeypatch.setattr(hub, "snapshot_download", fail)
    with pytest.raises(DataError, match="can be fetched: offline"):
        from_pretrained("me/nothing")
