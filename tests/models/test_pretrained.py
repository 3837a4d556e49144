import pytest
import torch

from dasp.bench.fitting import evaluate
from dasp.core.errors import OptionError
from dasp.data.shapes import SoundingShapes
from dasp.models import load_model
from dasp.models.pretrained import pretrained_names, pretrained_path


@pytest.fixture(scope="module")
def samples():
    cache = {}

    def of(flavour):
        if flavour not in cache:
            shapes = SoundingShapes("test", 144, flavour)
            cache[flavour] = [shapes[index] for index in range(len(shapes))]
        return cache[flavour]

    return of


def test_three_models_of_the_balanced_flavour_are_shipped():
    assert {f"sounding_shapes_{seed}" for seed in range(3)} <= set(pretrained_names())


@pytest.mark.parametrize("name", pretrained_names())
def test_a_shipped_model_knows_its_set_by_each_modality(name, samples):
    model = load_model("cav_mae", pretrained_path(name))
    accuracy = evaluate(model, samples("sound" if "_sound_" in name else "balanced"))
    assert accuracy["fused"] >= 80
    assert accuracy["audio"] >= 50
    assert accuracy["video"] >= (30 if "_sound_" in name else 50)


@pytest.mark.parametrize("name", pretrained_names())
def test_a_shipped_model_is_small_and_whole(name):
    path = pretrained_path(name)
    assert 1e6 < path.stat().st_size < 3e6
    state = load_model("cav_mae", path).state_dict()
    assert all(torch.isfinite(value).all() for value in state.values())


def test_shipped_models_are_independent():
    heads = [
        load_model("cav_mae", pretrained_path(f"sounding_shapes_{seed}")).head[1].weight.detach()
        for seed in range(3)
    ]
    for one, two in ((0, 1), (0, 2), (1, 2)):
        similarity = torch.cosine_similarity(heads[one].flatten(), heads[two].flatten(), dim=0)
        assert abs(float(similarity)) < 0.5


def test_an_unknown_model_is_refused_with_the_nearest_name():
    with pytest.raises(OptionError, match="did you mean 'sounding_shapes"):
        pretrained_path("sounding_shape_0")
