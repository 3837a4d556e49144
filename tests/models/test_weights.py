from itertools import combinations
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import dasp
from dasp.bench.train import evaluate
from dasp.core.errors import OptionError, WeightsError
from dasp.data.shapes import SENSORS, SoundingShapes
from dasp.models import (
    CavMaeDepth,
    Toy,
    load_trained,
    load_weights,
    pretrained_names,
    pretrained_path,
    save_weights,
)
from dasp.models.weights import from_published, read_weights

PUBLISHED = Path(__file__).parents[1] / "reference" / "model.safetensors"


def test_every_published_key_has_one_name_here(reference_model):
    names = [from_published(name) for name in load_file(PUBLISHED)]
    assert sorted(names) == sorted(reference_model.state_dict())
    assert all(from_published(name) == name for name in names)


def test_sizes_come_from_the_checkpoint_and_unknown_names_are_refused(
    reference_config, reference_model
):
    for key, value in reference_config.items():
        if key in reference_model.config:
            assert reference_model.config[key] == value
    for wrong, message in (
        ({"name": "cav_mae", "weights": PUBLISHED}, "num_heads"),  # which the width does not tell
        ({"name": "toy", "feature": 3}, "did you mean 'features'"),
        ({"name": "cavmae"}, "did you mean 'cav_mae'"),
        ({"name": "sounding_shape_0"}, "did you mean 'sounding_shapes_0'"),
    ):
        with pytest.raises(OptionError, match=message):
            dasp.load_model(**wrong)


@pytest.mark.parametrize("wrap", [dict, lambda state: {"model": state, "epoch": 3}])
def test_a_published_pickle(tmp_path, reference_model, wrap):
    path = tmp_path / "cav_mae_ks50.pth"
    torch.save(wrap(load_file(PUBLISHED)), path)
    model = dasp.load_model("cav_mae", weights=path, num_heads=2)
    assert not model.training
    for name, value in reference_model.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)


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


class Evil:
    def __reduce__(self):
        return (print, ("ran",))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("evil.pth", {"weight": Evil()}, "evil.pth is not a checkpoint of plain tensors"),
        ("list.pth", [1, 2], "not a mapping from names to tensors"),
        ("cut.safetensors", None, "cut.safetensors is not a readable"),
        ("other.safetensors", {"x": torch.zeros(2)}, "not the weights of a fine-tuned CAV-MAE"),
        ("none.pth", None, "no weights at .*none.pth"),
    ],
)
def test_files_without_usable_weights_are_named(tmp_path, name, content, message):
    path = tmp_path / name
    if name == "cut.safetensors":
        path.write_bytes(PUBLISHED.read_bytes()[:1000])
    elif content is not None:
        (save_file if path.suffix == ".safetensors" else torch.save)(content, path)
    with pytest.raises(WeightsError, match=message):
        dasp.load_model("cav_mae", weights=path)


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
    assert type(load_trained(whole)) is CavMaeDepth
    assert read_weights(part).config == read_weights(whole).config == model.config
    torch.testing.assert_close(load_trained(part).state_dict(), model.state_dict(), rtol=0, atol=0)
    with pytest.raises(OptionError, match="pretrained model"):
        save_weights(model, part, base="sounding_shapes_9")


@pytest.fixture(scope="module")
def samples():
    cache = {}

    def of(model, flavour="balanced"):
        if flavour not in cache:
            shapes = SoundingShapes("test", 144, flavour, modalities=SENSORS)
            cache[flavour] = [shapes[index] for index in range(len(shapes))]
        return [({n: s.inputs[n] for n in model.modalities}, s.label) for s in cache[flavour]]

    return of


@pytest.mark.parametrize("name", [n for n in pretrained_names() if n.startswith("sounding")])
def test_a_shipped_model_knows_its_set_by_each_modality(name, samples):
    model = dasp.load_model(name)
    assert not model.training
    assert 5e5 < pretrained_path(name).stat().st_size < 3e6
    accuracy = evaluate(model, samples(model, "sound" if "_sound_" in name else "balanced"))
    assert accuracy["fused"] >= 80
    assert accuracy["audio"] >= 50
    assert accuracy["video"] >= (30 if "_sound_" in name else 50)


@pytest.mark.parametrize("seed", range(3))
def test_a_third_sensor_helps_and_leaves_the_other_encoders_alone(seed, samples):
    two = load_trained(pretrained_path(f"sounding_shapes_{seed}"))
    three = load_trained(pretrained_path(f"sounding_shapes_depth_{seed}"))
    assert three.modalities == ("audio", "video", "depth")
    ours, theirs = three.state_dict(), two.state_dict()
    frozen = [name for name in theirs if name.startswith(("patch_embed", "positions", "blocks"))]
    assert all(torch.equal(ours[name], theirs[name]) for name in frozen)
    accuracy = evaluate(three, samples(three))
    assert accuracy["fused"] > accuracy["audio+video"] > max(accuracy["audio"], accuracy["video"])
    assert accuracy["fused"] > evaluate(two, samples(two))["fused"]
    assert 50 <= accuracy["depth"] <= 85


def test_shipped_models_are_independent():
    models = [dasp.load_model(f"sounding_shapes_{seed}") for seed in range(3)]
    heads = [model.head[1].weight.detach().flatten() for model in models]
    for one, two in combinations(heads, 2):
        assert abs(float(torch.cosine_similarity(one, two, dim=0))) < 0.5
