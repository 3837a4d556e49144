from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.progress import Progress

from dasp.bench import fitting
from dasp.bench.examples import epoch_batches, slices
from dasp.bench.fitting import Settings, Stage, evaluate, fit, schedule
from dasp.bench.train import train
from dasp.core.errors import OptionError, StateError
from dasp.models import Toy, load_model
from dasp.streams.synthetic import SyntheticWorld

TINY = {
    "easy_epochs": 1,
    "epochs": 2,
    "epoch_size": 64,
    "batch": 32,
    "width": 16,
    "heads": 2,
    "depth": 1,
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("dasp.bench.train.VALIDATION", 8)
    monkeypatch.setattr("dasp.bench.train.POOL", 1)


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_model("cav_mae", path).state_dict()


@pytest.mark.parametrize("after", [1, 2])
def test_a_training_that_was_stopped_ends_with_the_same_weights(
    tmp_path, cache, monkeypatch, after
):
    whole, broken = tmp_path / "whole.safetensors", tmp_path / "broken.safetensors"
    expected = train(whole, cache=cache, **TINY)
    save = fitting._save

    def stop(*arguments):
        save(*arguments)
        if len(arguments[-1]) == after:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(fitting, "_save", stop)
        with pytest.raises(KeyboardInterrupt):
            train(broken, cache=cache, **TINY)
    assert not broken.exists()
    assert train(broken, cache=cache, **TINY) == expected
    torch.testing.assert_close(weights(broken), weights(whole), rtol=0, atol=0)


def test_another_seed_gives_other_weights(tmp_path, cache):
    paths = [tmp_path / f"{seed}.safetensors" for seed in range(2)]
    for seed, path in enumerate(paths):
        train(path, cache=cache, seed=seed, **TINY)
    one, two = (weights(path)["head.1.weight"] for path in paths)
    assert not torch.equal(one, two)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path, cache):
    output = tmp_path / "model.safetensors"
    train(output, cache=cache, **TINY)
    with pytest.raises(StateError, match="other settings"):
        train(output, cache=cache, lr=1e-2, **TINY)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"output": Path("model.pth")}, "safetensors"),
        ({"output": Path("m.safetensors"), "data": Path("clips")}, "--validation"),
        ({"output": Path("m.safetensors"), "lr": 0.0}, "above 0"),
    ],
)
def test_wrong_options_are_refused(wrong, message):
    with pytest.raises(OptionError, match=message):
        train(**wrong)


def test_any_examples_train_and_each_modality_works_alone(tmp_path):
    batch = SyntheticWorld(classes=4, noise=0.5).draw(256, seed=1)
    examples = [
        ({name: value[i] for name, value in batch.inputs.items()}, int(batch.labels[i]), "id")
        for i in range(256)
    ]
    model = Toy(num_classes=4)
    with Progress(disable=True) as progress:
        history = fit(
            model,
            [Stage("synthetic", examples, 6)],
            examples,
            Settings(lr=1e-2, batch=32),
            tmp_path / "toy.checkpoint",
            progress,
        )
    assert history[-1].loss < history[0].loss
    accuracy = evaluate(model, examples)
    assert accuracy == history[-1].accuracy
    assert set(accuracy) == {"fused", "audio", "video"}
    assert all(value > 90 for value in accuracy.values())


def test_an_epoch_is_a_permutation_that_its_number_decides():
    examples = [({"audio": torch.tensor([float(i)])}, i) for i in range(10)]
    seen = [
        torch.cat([labels for _, labels in epoch_batches(examples, epoch, 5, 0)]).tolist()
        for epoch in (0, 0, 1)
    ]
    assert sorted(seen[0]) == list(range(10))
    assert seen[0] == seen[1] != seen[2]


def test_only_whole_batches_unless_there_is_none():
    assert [(s.start, s.stop) for s in slices(10, 4)] == [(0, 4), (4, 8)]
    assert [(s.start, s.stop) for s in slices(3, 4)] == [(0, 4)]
    assert len(list(slices(8, 4))) == 2


def test_the_learning_rate_climbs_and_falls():
    rates = np.array([schedule(done, 0.1) for done in np.linspace(0, 1, 101)])
    assert rates.argmax() in (9, 10)
    assert (np.diff(rates[:10]) > 0).all()
    assert (np.diff(rates[10:]) < 0).all()
    assert rates.max() == pytest.approx(1, abs=0.02)
    assert rates[-1] == pytest.approx(0, abs=1e-9)


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
    output = tmp_path / "own.safetensors"
    sizes = {"width": 16, "heads": 2, "depth": 1, "batch": 6, "epochs": 6, "lr": 1e-2}
    clips = {"data": tmp_path / "clips", "validation": tmp_path / "held_out"}
    history = train(output, **clips, **sizes)
    assert history[-1].loss < history[0].loss
    assert load_model("cav_mae", output).num_classes == 2
    (tmp_path / "held_out" / "dark").rename(tmp_path / "held_out" / "grey")
    with pytest.raises(OptionError, match="same classes"):
        train(output, **clips, **sizes)
