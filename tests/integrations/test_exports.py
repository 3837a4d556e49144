"""Exported graphs say what the model says."""

import pytest
import torch

import dasp
from dasp.core.errors import DataError, InputError, OptionError
from dasp.models import Exported, export

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def shapes():
    from dasp.data.shapes import SoundingShapes

    samples = [SoundingShapes("test", 72)[place] for place in range(12)]
    return {name: torch.stack([s.inputs[name] for s in samples]) for name in samples[0].inputs}


@pytest.fixture(scope="module")
def folders(shapes, tmp_path_factory):
    model = dasp.load_model("sounding_shapes_0")
    example = {name: value[:3] for name, value in shapes.items()}
    folder = tmp_path_factory.mktemp("exported")
    return {kind: export(model, example, folder / kind, kind) for kind in ("onnx", "torch")}


@pytest.mark.parametrize("kind", ["onnx", "torch"])
def test_the_same_predictions_for_batches_of_any_size(folders, shapes, kind):
    model, copy = dasp.load_model("sounding_shapes_0"), Exported(folders[kind])
    with torch.no_grad():
        tokens = model.encode(shapes)
    for name, own in copy.encode(shapes).items():
        assert torch.allclose(own, tokens[name], atol=1e-4)
    ours, theirs = dasp.adapt(copy, "source"), dasp.adapt(model, "source")
    for size in (1, 5, 12):
        batch = {name: value[:size] for name, value in shapes.items()}
        found, wanted = ours(batch).logits, theirs(batch).logits
        assert torch.allclose(found, wanted, atol=1e-4)
        assert torch.equal(found.argmax(1), wanted.argmax(1))


def test_our_method_without_gradients_says_the_same_on_damaged_sensors(folders, shapes):
    pair = [dasp.load_model("sounding_shapes_0"), Exported(folders["onnx"])]
    ours, theirs = (dasp.adapt(model, "triage", learn=False) for model in pair)
    for tta in (ours, theirs):
        tta.fit([shapes])
    noise = torch.randn(shapes["video"].shape, generator=torch.Generator().manual_seed(0))
    stream = [shapes, {**shapes, "video": shapes["video"] + 2 * noise}, {"audio": shapes["audio"]}]
    for batch in [*stream, *stream]:
        one, other = ours(batch), theirs(batch)
        assert torch.allclose(one.logits, other.logits, atol=1e-4)
        assert one.diagnosis.biased == other.diagnosis.biased


def test_what_an_export_cannot_do_is_said(folders, shapes, tmp_path, toy):
    copy = Exported(folders["onnx"])
    alone = dasp.adapt(copy, "source")({"audio": shapes["audio"]}).logits
    model = dasp.adapt(dasp.load_model("sounding_shapes_0"), "source")
    assert torch.allclose(alone, model({"audio": shapes["audio"]}).logits, atol=1e-4)
    with pytest.raises(dasp.DaspError):
        dasp.adapt(copy, "tent")
    with pytest.raises(DataError, match="give a directory"):
        Exported(tmp_path)
    with pytest.raises(InputError, match="two samples"):
        export(toy, {name: torch.zeros(1, 4, 12) for name in toy.modalities}, tmp_path)
    with pytest.raises(OptionError, match="'onnx' or 'torch'"):
        export(toy, {name: torch.zeros(2, 4, 12) for name in toy.modalities}, tmp_path, "tflite")
