"""Training: a checkpoint per epoch, orders that (seed, epoch) decides, each modality alone."""

import numpy as np
import pytest
import torch
from PIL import Image
from rich.progress import Progress

from dasp.bench import train
from dasp.bench.train import (
    Stage,
    TrainOptions,
    clip_stages,
    epoch_order,
    evaluate,
    fit,
    history_table,
    new_model,
    schedule,
)
from dasp.core.errors import OptionError, StateError
from dasp.models import Toy
from dasp.streams.synthetic import SyntheticWorld

OPTIONS = TrainOptions(lr=1e-2, batch=32)


def examples(modalities=("audio", "video"), count=256):
    batch = SyntheticWorld(modalities, classes=4, noise=0.5).draw(count, seed=1)
    return [
        ({name: value[i] for name, value in batch.inputs.items()}, int(batch.labels[i]), "id")
        for i in range(count)
    ]


def trained(path, items, epochs=(1, 2), options=OPTIONS, model=None):
    model = Toy(num_classes=4, seed=0) if model is None else model
    stages = [Stage(f"stage {i}", items, count) for i, count in enumerate(epochs)]
    with Progress(disable=True) as progress:
        return model, fit(model, stages, items, options, path, progress)


@pytest.mark.parametrize("after", [1, 2])
def test_a_training_that_was_stopped_ends_with_the_same_weights(tmp_path, monkeypatch, after):
    items = examples(count=64)
    whole, history = trained(tmp_path / "whole", items)
    save = train._save

    def stop(*arguments):
        save(*arguments)
        if len(arguments[-1]) == after:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(train, "_save", stop)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "broken", items)
    again, found = trained(tmp_path / "broken", items)
    assert found == history
    assert [epoch.stage for epoch in history] == ["stage 0", "stage 1", "stage 1"]
    torch.testing.assert_close(again.state_dict(), whole.state_dict(), rtol=0, atol=0)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    items = examples(count=64)
    trained(tmp_path / "one", items)
    for changed in ({"epochs": (1, 3)}, {"options": TrainOptions(lr=1e-3, batch=32)}):
        with pytest.raises(StateError, match="other settings"):
            trained(tmp_path / "one", items, **changed)
    with pytest.raises(OptionError, match="above 0"):
        TrainOptions(lr=0.0)


def test_any_examples_train_and_each_modality_works_alone(tmp_path):
    items = examples()
    model, history = trained(tmp_path / "toy", items, (6,))
    assert history[-1].loss < history[0].loss
    accuracy = evaluate(model, items)
    assert accuracy == history[-1].accuracy
    assert set(accuracy) == {"fused", "audio", "video"}
    assert all(value > 90 for value in accuracy.values())
    assert history_table(history).row_count == 6


def test_frozen_parts_stay_and_pairs_of_three_are_trained(tmp_path):
    names = ("audio", "video", "depth")
    model = Toy(modalities=names, num_classes=4, seed=0)
    frozen = next(iter(model.parameters())).requires_grad_(False)
    before = frozen.clone()
    options = TrainOptions(lr=1e-2, batch=32, pairs=0.5)
    _, (epoch,) = trained(tmp_path / "three", examples(names, 64), (1,), options, model)
    pairs = {"audio+video", "audio+depth", "video+depth"}
    assert set(epoch.accuracy) == {"fused", *names, *pairs}
    assert torch.equal(frozen, before)


def test_an_epoch_is_a_permutation_that_its_number_decides():
    seen = [np.concatenate(epoch_order(10, epoch, 5, 0)).tolist() for epoch in (0, 0, 1)]
    assert sorted(seen[0]) == list(range(10))
    assert seen[0] == seen[1] != seen[2]
    rates = [schedule(done) for done in (0, 0.01, 0.03, 0.5, 1)]
    assert rates[0] < rates[1] < rates[2] == 1 > rates[3] > rates[4] == 0  # climbs and falls
    assert list(map(len, epoch_order(10, 0, 4, 0))) == [4, 4]  # whole batches only
    assert list(map(len, epoch_order(3, 0, 4, 0))) == [3]  # unless there is none


def test_clips_of_the_users_own_train(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    generator = np.random.default_rng(0)
    for part in ("clips", "held_out"):
        for label, level in (("dark", 40), ("light", 210)):
            folder = tmp_path / part / label
            folder.mkdir(parents=True)
            for index in range(3):
                pixels = np.full((240, 240, 3), level, np.uint8)
                Image.fromarray(pixels).save(folder / f"{label}{index}.jpg")
                noise = 0.001 * level * generator.standard_normal(16000)
                soundfile.write(folder / f"{label}{index}.wav", noise.clip(-1, 1), 16000)
    stages, held_out, classes = clip_stages(tmp_path / "clips", tmp_path / "held_out", 4)
    assert classes == 2
    sizes = {"embed_dim": 16, "num_heads": 2, "depth": 1, "num_classes": 2}
    model, same, other = (new_model(sizes, seed) for seed in (0, 0, 1))
    assert torch.equal(model.head[1].weight, same.head[1].weight)
    assert not torch.equal(model.head[1].weight, other.head[1].weight)
    with Progress(disable=True) as progress:
        options = TrainOptions(lr=1e-2, batch=6)
        history = fit(model, stages, held_out, options, tmp_path / "own", progress)
    assert history[-1].loss < history[0].loss
    (tmp_path / "held_out" / "dark").rename(tmp_path / "held_out" / "grey")
    with pytest.raises(OptionError, match="same classes"):
        clip_stages(tmp_path / "clips", tmp_path / "held_out", 4)
