from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import dasp
from dasp.core.errors import OptionError, WeightsError
from dasp.models import CavMae, Toy, load_weights, save_weights
from dasp.models.weights import from_published

PUBLISHED = Path(__file__).parents[1] / "reference" / "model.safetensors"


def test_every_published_key_has_one_name_here(reference_model):
    names = [from_published(name) for name in load_file(PUBLISHED)]
    assert sorted(names) == sorted(reference_model.state_dict())


def test_our_own_names_pass_through(reference_model):
    assert all(from_published(name) == name for name in reference_model.state_dict())


def test_a_published_pickle(tmp_path, reference_model):
    path = tmp_path / "cav_mae_ks50.pth"
    torch.save(load_file(PUBLISHED), path)
    model = dasp.load_model("cav_mae", weights=path, num_heads=2)
    assert not model.training
    for name, value in reference_model.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)


def test_sizes_come_from_the_checkpoint(reference_config, reference_model):
    for key, value in reference_config.items():
        if key in reference_model.config:
            assert reference_model.config[key] == value


def test_heads_must_be_said_when_the_width_does_not_tell():
    with pytest.raises(OptionError, match="num_heads"):
        dasp.load_model("cav_mae", weights=PUBLISHED)


def test_saved_weights_carry_their_sizes(tmp_path, reference_model, reference_batches):
    path = tmp_path / "mine.safetensors"
    save_weights(reference_model, path)
    again = dasp.load_model("cav_mae", weights=path)
    assert again.config == reference_model.config
    assert torch.equal(again(reference_batches[0]), reference_model(reference_batches[0]))
    save_weights(Toy(modalities=("a", "b", "c")), path)
    assert dasp.load_model("toy", weights=path).modalities == ("a", "b", "c")


def test_missing_and_unexpected_keys_are_listed_and_nothing_is_loaded(reference_model):
    state = load_file(PUBLISHED)
    state["module.decoder.weight"] = state.pop("module.norm.weight")
    state["module.norm.bias"] = torch.zeros(3)
    before = {name: value.clone() for name, value in reference_model.state_dict().items()}
    with pytest.raises(WeightsError) as error:
        load_weights(reference_model, {name: value + 1 for name, value in state.items()})
    message = str(error.value)
    assert "1 missing: norm.weight" in message
    assert "1 unexpected: decoder.weight" in message
    assert "norm.bias (3,) instead of (32,)" in message
    assert all(torch.equal(before[n], v) for n, v in reference_model.state_dict().items())


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("ran",))

    path = tmp_path / "evil.pth"
    torch.save({"weight": Evil()}, path)
    with pytest.raises(WeightsError, match=r"evil.pth is not a checkpoint of plain tensors"):
        dasp.load_model("cav_mae", weights=path)


def test_damaged_and_missing_files_are_named(tmp_path):
    path = tmp_path / "cut.safetensors"
    path.write_bytes(PUBLISHED.read_bytes()[:1000])
    with pytest.raises(WeightsError, match=r"cut.safetensors is not a readable"):
        dasp.load_model("cav_mae", weights=path)
    with pytest.raises(WeightsError, match=r"no weights at .*none.pth"):
        dasp.load_model("cav_mae", weights=tmp_path / "none.pth")
    path = tmp_path / "list.pth"
    torch.save([1, 2], path)
    with pytest.raises(WeightsError, match="no map from names to tensors"):
        dasp.load_model("cav_mae", weights=path)
    save_file({"x": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(WeightsError, match="not the weights of a fine-tuned CAV-MAE"):
        dasp.load_model("cav_mae", weights=tmp_path / "other.safetensors")


def test_a_wrapped_state_dict(tmp_path):
    model = CavMae(embed_dim=16, num_heads=2, depth=1, audio_length=16, image_size=16)
    path = tmp_path / "wrapped.pth"
    torch.save({"model": model.state_dict(), "epoch": 3}, path)
    again = dasp.load_model("cav_mae", weights=path, num_heads=2)
    assert torch.equal(again.norm.weight, model.norm.weight)


def test_unknown_size():
    with pytest.raises(OptionError, match="did you mean 'features'"):
        dasp.load_model("toy", feature=3)


def test_unknown_model():
    with pytest.raises(OptionError, match="did you mean 'cav_mae'"):
        dasp.load_model("cavmae")
