"""The models of recordings: the contract, tokens, and what methods find in them."""

import pytest
import torch
from torch import nn

import dasp
from dasp.core.contract import HasFusionQkv, HasPrompts
from dasp.core.errors import ContractError, InputError
from dasp.models import CavMaeClips, InertialNet, load_trained, save_weights

SENSORS = ("accelerometer", "gyroscope", "magnetometer")
WORKING = [
    "source", "tent", "t3a", "cotta", "lame", "eata", "sar", "rotta", "read", "deyo", "abpem",
    "aeo", "midl", "pta", "dasp", "triage",
]  # fmt: skip


def body(**sizes):
    torch.manual_seed(0)
    channels = dict.fromkeys(SENSORS, 15)
    return InertialNet(channels=channels, widths=(8,), embed_dim=16, **sizes).eval()


def clips():
    torch.manual_seed(0)
    sizes = {"embed_dim": 16, "num_heads": 2, "depth": 1, "audio_length": 32, "image_size": 32}
    return CavMaeClips(**sizes, frames=4, tube=2, num_classes=5).eval()


INPUTS = {
    body: {name: torch.randn(6, 15, 125) for name in SENSORS},
    clips: {"audio": torch.randn(6, 32, 128), "video": torch.randn(6, 4, 32, 32)},
}


@pytest.mark.parametrize("build", INPUTS)
def test_they_keep_the_contract_and_survive_a_file(build, tmp_path):
    model = build()
    dasp.check_model(model, INPUTS[build])
    before = model(INPUTS[build])
    save_weights(model, tmp_path / "model.safetensors")
    again = load_trained(tmp_path / "model.safetensors")
    assert type(again) is type(model)
    torch.testing.assert_close(again(INPUTS[build]), before, rtol=0, atol=0)
    save_weights(model.half(), tmp_path / "half.safetensors")
    half = load_trained(tmp_path / "half.safetensors")
    assert next(half.parameters()).dtype == torch.float32
    torch.testing.assert_close(half(INPUTS[build]), before, rtol=0.05, atol=0.02)


def test_a_tube_token_sees_its_frames_and_its_patch_alone():
    model, video = clips(), INPUTS[clips]["video"]
    before = model.embed({"video": video})["video"]
    changed = video.clone()
    changed[:, 2:, :16, 16:] += 1  # the second pair of frames, upper right patch
    after = model.embed({"video": changed})["video"]
    assert (before != after).any(dim=2).any(dim=0).tolist() == [False] * 5 + [True] + [False] * 2


def test_wrong_shapes_are_named():
    with pytest.raises(InputError, match=r"'video' has shape .* expected \(B, 4, 32, 32\)"):
        clips().encode({"video": torch.zeros(1, 3, 32, 32)})
    with pytest.raises(InputError, match=r"'gyroscope' has shape .* expected \(B, 15, 125\)"):
        body().encode({"gyroscope": torch.zeros(1, 9, 125)})


@pytest.mark.parametrize("method", WORKING)
def test_methods_adapt_a_cnn_with_batch_norm(method):
    model = body()
    norms = [part for part in model.modules() if isinstance(part, nn.BatchNorm1d)]
    kept = [norm.running_mean.clone() for norm in norms]
    tta = dasp.adapt(model, method)
    for _ in range(3):
        out = tta(INPUTS[body])
    assert torch.isfinite(out.logits).all()
    tta.reset()
    assert all(map(torch.equal, kept, (norm.running_mean for norm in norms)))


def test_read_finds_queries_keys_and_values_and_prompts_are_not_promised():
    model = body()
    assert isinstance(model, HasFusionQkv)
    assert [tuple(p.shape) for p in model.fusion_qkv()] == [(48, 16), (48,)]
    assert not isinstance(model, HasPrompts)
    assert [len(layers) for layers in model.layers().encoders.values()] == [2] * 3
    two = InertialNet(channels={"accelerometer": 15, "gyroscope": 15}, widths=(8,), embed_dim=16)
    with pytest.raises(ContractError, match="encode_prompted"):
        dasp.adapt(two, "brimpr")
