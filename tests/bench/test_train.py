"""Training: a checkpoint per epoch, orders that (seed, epoch) decides, each modality alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from rich.progress import Progress

from dasp.bench import train
from dasp.bench.train import TrainOptions, epoch_order, evaluate, fit, history_table, schedule
from dasp.cli.main import main
from dasp.core.errors import OptionError, StateError
from dasp.models import Toy, load_trained
from dasp.streams.synthetic import SyntheticWorld

OPTIONS = TrainOptions(epochs=3, lr=1e-2, batch=32)


def examples(modalities=("audio", "video"), count=256):
    batch = SyntheticWorld(modalities, classes=4, noise=0.5).draw(count, seed=1)
    return [
        ({name: value[i] for name, value in batch.inputs.items()}, int(batch.labels[i]), "id")
        for i in range(count)
    ]


def trained(path, items, options=OPTIONS, model=None, pairs=0.0):
    model = Toy(num_classes=4, seed=0) if model is None else model
    with Progress(disable=True) as progress:
        return model, fit(model, items, items, options, path, progress, pairs)


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
    assert len(history) == 3
    torch.testing.assert_close(again.state_dict(), whole.state_dict(), rtol=0, atol=0)
    for changed in ({"epochs": 4}, {"lr": 1e-3}, {"seed": 1}):
        with pytest.raises(StateError, match="other settings"):
            trained(tmp_path / "broken", items, replace(OPTIONS, **changed))


@pytest.mark.parametrize(("wrong", "why"), [({"lr": 0.0}, "above 0"), ({"epochs": 0}, "from 1")])
def test_impossible_options_are_refused(wrong, why):
    with pytest.raises(OptionError, match=why):
        TrainOptions(**wrong)


def test_any_examples_train_and_each_modality_works_alone(tmp_path):
    items = examples()
    model, history = trained(tmp_path / "toy", items, replace(OPTIONS, epochs=6))
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
    options, items = replace(OPTIONS, epochs=1), examples(names, 64)
    _, (epoch,) = trained(tmp_path / "three", items, options, model, pairs=0.5)
    pairs = {"audio+video", "audio+depth", "video+depth"}
    assert set(epoch.accuracy) == {"fused", *names, *pairs}
    assert torch.equal(frozen, before)


def test_an_epoch_is_a_permutation_that_its_number_decides():
    five, four = replace(OPTIONS, batch=5), replace(OPTIONS, batch=4)
    seen = [np.concatenate(epoch_order(10, epoch, five)).tolist() for epoch in (0, 0, 1)]
    assert sorted(seen[0]) == list(range(10))
    assert seen[0] == seen[1] != seen[2]
    rates = [schedule(done) for done in (0, 0.01, 0.03, 0.5, 1)]
    assert rates[0] < rates[1] < rates[2] == 1 > rates[3] > rates[4] == 0  # climbs and falls
    assert list(map(len, epoch_order(10, 0, four))) == [4, 4]  # whole batches only
    assert list(map(len, epoch_order(3, 0, four))) == [3]  # unless there is none


def test_clips_of_the_users_own_train(tmp_path, capsys):
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
    data = f"--data {tmp_path}/clips --validation {tmp_path}/held_out"
    sizes = "--width 16 --heads 2 --depth 1 --epochs 2 --batch 6"
    models = []
    for name, seed in (("a", 0), ("same", 0), ("other", 1)):
        words = f"train {tmp_path}/{name}.safetensors {data} {sizes} --seed {seed}"
        assert main(words.split()) == 0
        models.append(load_trained(tmp_path / f"{name}.safetensors"))
    assert models[0].num_classes == 2
    model, same, other = (model.head[1].weight for model in models)
    assert torch.equal(model, same)
    assert not torch.equal(model, other)
    (tmp_path / "held_out" / "dark").rename(tmp_path / "held_out" / "grey")
    for words, why in (("x.safetensors", "same classes"), ("x.pth", "a .safetensors file")):
        assert main(f"train {tmp_path}/{words} {data}".split()) == 2
        assert why in capsys.readouterr().err
