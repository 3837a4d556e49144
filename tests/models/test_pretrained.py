import pytest
import torch

from dasp.bench.fitting import evaluate
from dasp.core.errors import OptionError
from dasp.data.shapes import SENSORS, SoundingShapes
from dasp.models import load_trained
from dasp.models.pretrained import pretrained_names, pretrained_path


@pytest.fixture(scope="module")
def samples():
    cache = {}

    def of(model, flavour="balanced"):
        if flavour not in cache:
            shapes = SoundingShapes("test", 144, flavour, modalities=SENSORS)
            cache[flavour] = [shapes[index] for index in range(len(shapes))]
        return [({n: s.inputs[n] for n in model.modalities}, s.label) for s in cache[flavour]]

    return of


def test_three_models_of_the_balanced_flavour_are_shipped():
    assert {f"sounding_shapes_{seed}" for seed in range(3)} <= set(pretrained_names())


@pytest.mark.parametrize("name", pretrained_names())
def test_a_shipped_model_knows_its_set_by_each_modality(name, samples):
    model = load_trained(pretrained_path(name))
    accuracy = evaluate(model, samples(model, "sound" if "_sound_" in name else "balanced"))
    assert accuracy["fused"] >= 80
    assert accuracy["audio"] >= 50
    assert accuracy["video"] >= (30 if "_sound_" in name else 50)


@pytest.mark.parametrize("name", pretrained_names())
def test_a_shipped_model_is_small_and_whole(name):
    path = pretrained_path(name)
    assert 5e5 < path.stat().st_size < 3e6
    state = load_trained(path).state_dict()
    assert all(torch.isfinite(value).all() for value in state.values())


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
    heads = [
        load_trained(pretrained_path(f"sounding_shapes_{seed}")).head[1].weight.detach()
        for seed in range(3)
    ]
    for one, two in ((0, 1), (0, 2), (1, 2)):
        similarity = torch.cosine_similarity(heads[one].flatten(), heads[two].flatten(), dim=0)
        assert abs(float(similarity)) < 0.5


def test_an_unknown_model_is_refused_with_the_nearest_name():
    with pytest.raises(OptionError, match="did you mean 'sounding_shapes"):
        pretrained_path("sounding_shape_0")


@pytest.mark.parametrize("name", ["sounding_shapes_0", "sounding_shapes_depth_0"])
def test_a_shipped_model_is_loaded_by_its_name_alone(name):
    import dasp

    model = dasp.load_model(name)
    assert not model.training
    assert ("depth" in model.modalities) == ("depth" in name)
