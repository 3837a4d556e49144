"""The parts of CoTTA and RoTTA that the figures of whole runs do not show."""

import pytest
import torch

import dasp
from dasp.core.errors import InputError, OptionError
from dasp.methods.augment import AUGMENTATIONS, augmented
from dasp.methods.copies import WeightCopy
from dasp.methods.cotta import consistency
from dasp.methods.rotta import Item, admit
from dasp.models import CavMaeDepth, Toy


def test_a_copy_stands_in_for_the_weights_and_leaves(toy, batches):
    copy = WeightCopy(toy, toy.parameters())
    before = toy(batches[0])
    with torch.no_grad():
        for weight in toy.parameters():
            weight.mul_(1.5)
    with copy.in_place():
        assert torch.equal(toy(batches[0]), before)
    with pytest.raises(InputError), copy.in_place():
        toy({"audio": torch.zeros(2)})
    assert not torch.equal(toy(batches[0]), before)
    weight = next(toy.parameters())
    copy.follow(0.25)
    torch.testing.assert_close(copy.of(weight), 0.75 * weight / 1.5 + 0.25 * weight)


def test_the_memory_keeps_what_the_release_keeps(figures):
    expected, items = figures("rotta"), []
    capacity, classes = int(expected["bank.capacity"]), 10
    labels, values = (expected[f"bank.{key}"].tolist() for key in ("class", "uncertainty"))
    stream = zip(labels, values, strict=True)
    for place, (label, uncertainty) in enumerate(stream):
        admit(items, Item(label, uncertainty, place), capacity, classes)
    assert [item.place for item in items] == expected["bank.kept"].tolist()
    assert [item.age for item in items] == expected["bank.age"].tolist()


def test_the_remembered_samples_agree(reference_model, reference_batches, figures):
    expected = figures("rotta")
    tta = dasp.adapt(reference_model, "rotta", lr=2e-3, memory=16, period=16, nu=0.1)
    seen = torch.cat([batch["audio"] for batch in reference_batches])
    for i, batch in enumerate(reference_batches):
        tta(batch)
        stored = tta.method.store.samples(batch)["audio"]
        assert torch.equal(stored, seen[expected[f"memory{i}"]])
        assert tta.method.age.tolist() == expected[f"age{i}"].tolist()
        counts = torch.bincount(tta.method.labels, minlength=10)
        assert counts.tolist() == expected["occupancy"][i].tolist()


def test_a_batch_longer_than_the_period_makes_several_steps(batches):
    tta = dasp.adapt(Toy(seed=1), "rotta", memory=4, period=5)
    assert tta(batches[0]).updated  # 16 samples
    (first, *_) = tta.memory.optimizer.state.values()
    assert (int(first["step"]), int(tta.method.arrived), int(tta.method.position)) == (3, 16, 0)


def test_samples_of_another_shape_are_refused_and_change_nothing(batches, same_state):
    tta = dasp.adapt(Toy(seed=1), "rotta", period=4)
    tta(batches[0])
    before = tta.memory.capture()
    with pytest.raises(InputError, match="one shape"):
        tta({name: value[:, :2] for name, value in batches[1].items()})
    assert same_state(before, tta.memory.capture())


def test_cotta_waits_while_there_is_nothing_but_rounding_noise(batches):
    assert not dasp.adapt(Toy(seed=1), "cotta", ap=0.0)(batches[0]).updated
    assert dasp.adapt(Toy(seed=1), "cotta", ap=0.0, symmetric=True)(batches[0]).updated
    assert dasp.adapt(Toy(seed=1), "cotta", ap=1.0)(batches[0]).updated


def test_everything_returns_to_the_source_at_probability_one(batches):
    tta = dasp.adapt(Toy(seed=1), "cotta", ap=1.0, restore=1.0, lr=1e-2)
    before = tta.memory.capture().tensors
    tta(batches[0])
    after = tta.memory.capture().tensors
    for name, value in before.items():
        if name.startswith("weight/"):
            assert torch.equal(value, after[name])
    assert any(not torch.equal(v, after[n]) for n, v in before.items() if "teacher" in n)


def test_a_teacher_begins_with_the_source_of_a_model_in_use(batches):
    model = Toy(seed=1)
    tent = dasp.adapt(model, "tent", lr=0.1)
    tent(batches[0])
    tta = dasp.adapt(model, "cotta")
    fresh = dasp.adapt(Toy(seed=1), "cotta")
    assert torch.equal(tta(batches[1]).logits, fresh(batches[1]).logits)


def test_the_symmetric_loss_is_symmetric():
    one, two = torch.randn(2, 6, 4)
    torch.testing.assert_close(consistency(one, two, True), consistency(two, one, True))


@pytest.mark.parametrize(
    ("name", "copy"),
    [("cotta", "teacher"), ("rotta", "teacher"), ("adapgc", "shadow")],
)
def test_what_a_modality_says_alone_is_said_by_the_weights_that_predict(name, copy, batches):
    period = {"period": 16} if name == "rotta" else {}
    tta = dasp.adapt(Toy(seed=1), name, lr=1e-2, **period)
    for batch in batches:
        tta(batch)
    found = tta.alone(batches[0])["audio"]
    student = tta.method.forward({"audio": batches[0]["audio"]}).logits
    with getattr(tta.method, copy).in_place():
        expected = tta.method.forward({"audio": batches[0]["audio"]}).logits
    assert torch.equal(found, expected)
    assert not torch.allclose(found, student)
    with tta.frozen():
        lacking = tta({"audio": batches[0]["audio"]}).logits
    assert not torch.allclose(lacking, student)


def test_a_third_sensor_is_in_the_order_too():
    model = CavMaeDepth(
        embed_dim=16, num_heads=2, depth=1, audio_length=32, image_size=32, num_classes=4
    )
    ordered = {id(weight) for weight in model.weight_order()}
    named = model.named_parameters()
    assert ordered == {id(p) for n, p in named if n.rpartition(".")[2] in ("weight", "bias")}


@pytest.mark.parametrize("name", list(AUGMENTATIONS))
@pytest.mark.parametrize("shape", [(3, 40), (3, 10, 6), (3, 3, 8, 8), (2, 1, 1)])
def test_augmentations_keep_the_shape_and_the_seed_decides(name, shape):
    values = torch.randn(shape)

    def draw():
        return AUGMENTATIONS[name](values, 1, torch.Generator().manual_seed(3))

    assert draw().shape == values.shape
    assert torch.equal(draw(), draw())
    assert torch.isfinite(draw()).all()


def test_an_augmentation_of_ones_own_is_found_by_name(batches):
    AUGMENTATIONS.register("louder")(lambda values, number, generator: 2 * values)
    try:
        per_modality = {"audio": "louder", "video": "roll"}
        changed = augmented(batches[0], per_modality, 0, torch.Generator())
        assert torch.equal(changed["audio"], 2 * batches[0]["audio"])
        assert torch.equal(changed["video"], batches[0]["video"])
        dasp.adapt(Toy(), "cotta", augment=per_modality)
    finally:
        del AUGMENTATIONS["louder"]
    with pytest.raises(OptionError, match="augmentation"):
        dasp.adapt(Toy(), "cotta", augment="rol")
    with pytest.raises(OptionError, match="the model has"):
        dasp.adapt(Toy(), "rotta", augment={"audio": "roll"})
