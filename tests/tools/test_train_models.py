import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dasp.bench import train as training
from dasp.bench.references import find_model
from dasp.core.errors import OptionError, StateError
from dasp.models import Toy, load_trained

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from train_models import RECIPES, Pools, Recipe, train, with_depth

SMALL = {"epoch_size": 64, "per_class": 1, "validation": 8, "batch": 32}
TINY = Recipe(easy_epochs=1, epochs=1, sizes={"embed_dim": 16, "num_heads": 2, "depth": 1}, **SMALL)
DEPTH = replace(RECIPES["sounding_shapes_depth_2"], epochs=2, **SMALL)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_trained(path).state_dict()


@pytest.mark.parametrize("recipe", [TINY, DEPTH], ids=["two sensors", "three sensors"])
def test_a_training_that_was_stopped_ends_with_the_same_weights(
    tmp_path, cache, monkeypatch, recipe
):
    whole, broken = tmp_path / "whole.safetensors", tmp_path / "broken.safetensors"
    expected = train(recipe, whole, cache, show=False)
    save = training._save

    def stop(*arguments):
        save(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(training, "_save", stop)
        with pytest.raises(KeyboardInterrupt):
            train(recipe, broken, cache, show=False)
    assert not broken.exists()
    with pytest.raises(StateError, match="other settings"):
        train(replace(recipe, seed=7), broken, cache, show=False)
    assert train(recipe, broken, cache, show=False) == expected
    torch.testing.assert_close(weights(broken), weights(whole), rtol=0, atol=0)


def test_a_third_encoder_leaves_the_others_alone(tmp_path, cache):
    (epoch,) = train(replace(DEPTH, epochs=1), tmp_path / "three.safetensors", cache, show=False)
    pairs = {"audio+video", "audio+depth", "video+depth"}
    assert set(epoch.accuracy) == {"fused", "audio", "video", "depth"} | pairs
    two, three = find_model(DEPTH.base).state_dict(), weights(tmp_path / "three.safetensors")
    start = with_depth(find_model(DEPTH.base), DEPTH.seed).state_dict()
    parts = ("patch_embed", "positions", "blocks")
    frozen = tuple(f"{part}.{name}" for part in parts for name in ("audio", "video"))
    assert all(torch.equal(two[name], three[name]) for name in two if name.startswith(frozen))
    for name in ("head.1.weight", "shared_blocks.0.attn.qkv.weight", "patch_embed.depth.weight"):
        assert not torch.equal(start[name], three[name])
    for wrong in (Toy(), load_trained(tmp_path / "three.safetensors")):
        with pytest.raises(OptionError, match="CAV-MAE of two"):
            with_depth(wrong, 0)


def test_the_epoch_decides_which_members_of_the_pools_are_combined(tmp_path):
    recipe = replace(TINY, epoch_size=72, per_class=2)
    pools = Pools(recipe, "balanced", tmp_path, ("audio", "video"), iter)
    three = Pools(recipe, "balanced", tmp_path, ("audio", "video", "depth"), iter)
    dates = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npy")}
    first, labels = pools.batch(np.arange(72))
    assert torch.bincount(labels).tolist() == [2] * 36
    pools.set_epoch(1)
    assert not torch.equal(pools.batch(np.arange(72))[0]["audio"], first["audio"])
    pools.set_epoch(0)
    inputs, same = three.batch(np.arange(72))
    assert torch.equal(same, labels)
    for name, value in pools.batch(np.arange(72))[0].items():
        assert torch.equal(value, first[name])
        assert torch.equal(value, inputs[name])
    assert dates == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npy")}
