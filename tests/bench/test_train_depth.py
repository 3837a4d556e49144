import pytest
import torch

from dasp.bench.references import find_model
from dasp.bench.train_depth import train_depth, with_depth
from dasp.core.errors import OptionError
from dasp.models import Toy, load_trained

TINY = {"epochs": 1, "epoch_size": 64, "batch": 32}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("dasp.bench.train_depth.VALIDATION", 8)
    monkeypatch.setattr("dasp.bench.train_depth.POOL", 1)


def test_a_third_encoder_is_trained_and_the_others_are_left_alone(tmp_path):
    output = tmp_path / "three.safetensors"
    (epoch,) = train_depth(output, base="sounding_shapes_2", cache=tmp_path, **TINY)
    assert set(epoch.accuracy) == {
        "fused", "audio", "video", "depth", "audio+video", "audio+depth", "video+depth",
    }  # fmt: skip
    two, three = find_model("sounding_shapes_2").state_dict(), load_trained(output).state_dict()
    start = with_depth(find_model("sounding_shapes_2"), 0).state_dict()
    frozen = [f"{part}.{name}" for part in ("patch_embed", "positions", "blocks")
              for name in ("audio", "video")]  # fmt: skip
    for name in two:
        if name.startswith(tuple(frozen)):
            assert torch.equal(two[name], three[name])
    for name in ("head.1.weight", "shared_blocks.0.attn.qkv.weight", "patch_embed.depth.weight"):
        assert not torch.equal(start[name], three[name])
    again = tmp_path / "again.safetensors"
    train_depth(again, base="sounding_shapes_2", cache=tmp_path, **TINY)
    torch.testing.assert_close(load_trained(again).state_dict(), three, rtol=0, atol=0)


def test_wrong_options_are_refused(tmp_path):
    with pytest.raises(OptionError, match="safetensors"):
        train_depth(tmp_path / "model.pth")
    with pytest.raises(OptionError, match="did you mean 'sounding_shapes"):
        train_depth(tmp_path / "m.safetensors", base="sounding_shape_0")
    for wrong in (Toy(), with_depth(find_model("sounding_shapes_0"), 0)):
        with pytest.raises(OptionError, match="CAV-MAE of two"):
            with_depth(wrong, 0)
