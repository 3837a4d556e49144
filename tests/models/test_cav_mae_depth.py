import pytest
import torch

import dasp
from dasp.core.contract import check_model
from dasp.core.errors import ContractError, OptionError
from dasp.models import CavMaeDepth, load_model, load_trained, save_weights
from dasp.models.pretrained import pretrained_path
from dasp.models.weights import read_weights

SMALL = {
    "embed_dim": 16, "num_heads": 2, "depth": 2, "audio_length": 48, "mel_bins": 32,
    "image_size": 32, "num_classes": 5,
}  # fmt: skip


@pytest.fixture
def model():
    torch.manual_seed(0)
    return CavMaeDepth(**SMALL).eval()


@pytest.fixture
def inputs():
    torch.manual_seed(1)
    return {
        "audio": torch.randn(3, 48, 32),
        "video": torch.randn(3, 3, 32, 32),
        "depth": torch.randn(3, 3, 32, 32),
    }


def test_it_keeps_the_contract(model, inputs):
    check_model(model, inputs)
    assert model.encode(inputs)["depth"].shape == (3, 16, 16)


def test_attention_has_a_span_of_each_modality(model, inputs):
    shown = model.fuse_with_attention(model.encode(inputs))
    assert list(shown.attention.spans) == ["audio", "video", "depth"]
    assert shown.attention.spans["depth"] == slice(10, 26)
    assert shown.attention.weights.shape == (3, 2, 26, 26)


def test_depth_alone_has_norms_of_its_own(model, inputs):
    tokens = model.encode({"depth": inputs["depth"]})
    before = model.fuse_own_norm(tokens).logits
    with torch.no_grad():
        model.shared_blocks[0].own_norm1["depth"].weight.mul_(2)
    assert not torch.allclose(before, model.fuse_own_norm(tokens).logits)


def test_encoders_open_up_without_changing(model, inputs):
    assert model.encoder_depth() == {"audio": 2, "video": 2, "depth": 2}
    layered = model.encode_prompted(model.embed(inputs), {})
    for name, tokens in model.encode(inputs).items():
        torch.testing.assert_close(layered[name].tokens, tokens)


def test_sizes_are_checked_and_named():
    with pytest.raises(OptionError, match="range_size=30 is not a multiple"):
        CavMaeDepth(**SMALL, range_size=30)
    with pytest.raises(OptionError, match="did you mean 'range_size'"):
        load_model("cav_mae_depth", range_sizes=16)
    sizes = SMALL | {"range_size": 16, "range_blocks": 1}
    assert load_model("cav_mae_depth", **sizes).encoder_depth()["depth"] == 1


def test_a_saved_model_comes_back_as_what_it_was(model, tmp_path):
    save_weights(model, tmp_path / "three.safetensors")
    again = load_trained(tmp_path / "three.safetensors")
    assert type(again) is CavMaeDepth
    torch.testing.assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_what_equals_the_base_is_not_stored_but_found(tmp_path):
    base = load_trained(pretrained_path("sounding_shapes_1"))
    model = CavMaeDepth(**base.config)
    model.load_state_dict(base.state_dict(), strict=False)
    with torch.no_grad():
        model.norm.bias.add_(1)
    whole, part = tmp_path / "whole.safetensors", tmp_path / "part.safetensors"
    save_weights(model, whole)
    save_weights(model, part, base="sounding_shapes_1")
    assert part.stat().st_size < whole.stat().st_size / 3
    torch.testing.assert_close(read_weights(part), read_weights(whole), rtol=0, atol=0)
    torch.testing.assert_close(load_trained(part).state_dict(), model.state_dict(), rtol=0, atol=0)
    with pytest.raises(OptionError, match="pretrained model"):
        save_weights(model, part, base="sounding_shapes_9")


@pytest.mark.parametrize("method", ["tent", "eata", "sar", "read", "abpem", "pta", "dasp"])
def test_methods_for_any_number_of_modalities_adapt_it(model, inputs, method):
    outcome = dasp.adapt(model, method, lr=1e-2)(inputs)
    assert outcome.logits.shape == (3, 5)
    assert outcome.rejected is None


@pytest.mark.parametrize("method", ["tsa", "sumi"])
def test_methods_for_two_refuse_it(model, method):
    with pytest.raises(ContractError, match="defined for two modalities"):
        dasp.adapt(model, method)
