"""The training of source models of recordings, on a tiny tree."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dasp.core.errors import DataError, OptionError
from dasp.data.inertial import find_segments, people_of
from dasp.models import load_trained, pretrained_path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import real_data
import train_real

PEOPLE = (*people_of("train"), *people_of("validation"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("dsa")
    for activity in range(1, 20):
        for person in PEOPLE:
            (root / f"a{activity:02d}" / person).mkdir(parents=True)
    for segment in find_segments(root, PEOPLE)[: 19 * len(PEOPLE)]:
        generator = np.random.default_rng(segment.label)
        values = generator.normal(size=45) * 5 + generator.normal(size=(125, 45))
        np.savetxt(segment.path, values, fmt="%.4f", delimiter=",")
    return root


@pytest.fixture
def one_segment(monkeypatch):
    """Use the first segment in the order of a stream alone."""
    find = train_real.inertial.find_segments

    def few(root, people):
        return find(root, people)[: 19 * len(people)]

    monkeypatch.setattr(train_real.inertial, "find_segments", few)


def test_a_small_model_learns_and_is_kept_in_half_precision(tree, tmp_path, one_segment):
    recipe = replace(train_real.RECIPES["dsa_1"], epochs=4, batch=19)
    history = train_real.train(recipe, tree, tmp_path / "net.safetensors", show=False)
    assert len(history) == 5  # and the last one again, in half precision
    assert history[-1].accuracy["fused"] > 80  # the classes lie far apart
    first = load_trained(tmp_path / "net.safetensors").state_dict()
    train_real.train(recipe, tree, tmp_path / "again.safetensors", show=False)
    again = load_trained(tmp_path / "again.safetensors").state_dict()
    torch.testing.assert_close(first, again, rtol=0, atol=0)


def test_the_person_left_out_is_not_trained_on(tree, tmp_path, one_segment, monkeypatch):
    seen = []
    find = train_real.inertial.find_segments

    def noted(root, people):
        seen.append(people)
        return find(root, [person for person in people if person in PEOPLE])

    monkeypatch.setattr(train_real.inertial, "find_segments", noted)
    recipe = replace(train_real.RECIPES["dsa_0"], epochs=1, batch=19)
    train_real.train(recipe, tree, tmp_path / "net.safetensors", "p3", show=False)
    assert seen == [("p1", "p2", "p4", "p5", "p6", "p7", "p8"), ("p3",)]
    words = train_real.RECIPES["grid_0"]
    with pytest.raises(OptionError, match="grid is split by sentence"):
        train_real.train(words, tree, tmp_path / "w.safetensors", "p3", show=False)


@pytest.mark.parametrize("name", train_real.RECIPES)
def test_the_packaged_models_are_of_their_recipe_and_small(name):
    model, path = load_trained(pretrained_path(name)), pretrained_path(name)
    sizes = {key: model.config[key] for key in train_real.RECIPES[name].sizes}
    assert sizes == train_real.RECIPES[name].sizes
    assert path.stat().st_size < 2_000_000


def test_packed_recordings_are_unpacked_and_unpacked_ones_linked(tmp_path):
    source = tmp_path / "source"
    (source / "grid_words" / "bin").mkdir(parents=True)
    (source / "grid_words" / "bin" / "bbaf2n_0.mp4").touch()
    (source / "dsa").mkdir()
    lines = [
        "import pathlib, sys",
        "for a in range(1, 20):",
        "    for p in range(1, 9):",
        "        pathlib.Path(sys.argv[1], f'a{a:02d}', f'p{p}').mkdir(parents=True)",
    ]
    (source / "dsa" / "unpack.py").write_text("\n".join(lines))
    for _ in range(2):  # the second time nothing is to be done
        real_data.prepare(source, tmp_path / "target")
    assert (tmp_path / "target" / "grid").is_symlink()
    assert (tmp_path / "target" / "dsa" / "a19" / "p8").is_dir()
    with pytest.raises(DataError, match="has no directory grid or grid_words"):
        real_data.prepare(tmp_path / "target" / "dsa", tmp_path / "other")
