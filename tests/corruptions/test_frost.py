"""Ice grown from a seed, and ice from the user's folder."""

from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from dasp.core.errors import DataError
from dasp.corruptions import corrupt_frame
from dasp.corruptions.frost import TEXTURES, grow_texture, texture_window

GREY = np.full((224, 224, 3), 100, np.uint8)


def save(path, colour, size=(300, 260)):
    Image.new("RGB", size, colour).save(path)


def test_textures_differ_and_are_bluish_with_detail():
    textures = [grow_texture(number).astype(float) for number in range(TEXTURES)]
    for one, other in pairwise(textures):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.5
    for ice in textures:
        red, _, blue = ice.mean(axis=(0, 1))
        assert blue > red + 10
        assert 105 < ice.mean() < 130
        assert np.abs(np.diff(ice, axis=1)).mean() > 5  # crystals, not only clouds
    with pytest.raises(ValueError, match="read-only"):
        grow_texture(0)[0, 0] = 0


def test_at_224_the_window_is_cut_and_not_resized():
    window = texture_window(224, 224, np.random.default_rng(3))
    places = np.lib.stride_tricks.sliding_window_view
    assert any(
        (places(grow_texture(n)[..., 0], (1, 224))[:, :, 0] == window[0, :, 0]).all(-1).any()
        for n in range(TEXTURES)
    )


@pytest.mark.parametrize("size", [(16, 16), (16, 600), (600, 16), (300, 260), (700, 900)])
def test_windows_of_any_size(size):
    assert texture_window(*size, np.random.default_rng(0)).shape == (*size, 3)


def test_a_folder_replaces_the_grown_ice(tmp_path):
    save(tmp_path / "red.png", (200, 0, 0))
    (tmp_path / "notes.txt").write_text("not a picture")
    frosted = corrupt_frame(GREY, "frost", 5, frost_dir=tmp_path)
    assert np.array_equal(np.unique(frosted.reshape(-1, 3), axis=0), [[210, 60, 60]])
    assert np.array_equal(frosted, corrupt_frame(GREY, "frost", 5, frost_dir=str(tmp_path)))


def test_every_picture_is_used_and_enlarged_if_it_is_small(tmp_path):
    save(tmp_path / "a.png", (80, 80, 80), size=(50, 40))
    save(tmp_path / "b.JPG", (240, 240, 240))
    ids = [str(number) for number in range(20)]
    frosted = [corrupt_frame(GREY, "frost", 5, sample_id=i, frost_dir=tmp_path) for i in ids]
    assert {int(level) for frame in frosted for level in np.unique(frame)} == {120, 240}


def test_a_missing_an_empty_and_a_broken_folder_are_named(tmp_path):
    with pytest.raises(DataError, match="nowhere' is not a directory"):
        corrupt_frame(GREY, "frost", 1, frost_dir=tmp_path / "nowhere")
    with pytest.raises(DataError, match="has no pictures"):
        corrupt_frame(GREY, "frost", 1, frost_dir=tmp_path)
    save(tmp_path / "cut.png", (9, 9, 9))
    whole = (tmp_path / "cut.png").read_bytes()
    for number, content in enumerate((b"not a png", whole[: len(whole) // 2])):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "bad.png").write_bytes(content)
        with pytest.raises(DataError, match=r"bad\.png' cannot be read"):
            corrupt_frame(GREY, "frost", 1, frost_dir=folder)
