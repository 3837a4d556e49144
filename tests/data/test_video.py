import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dasp.core.errors import DataError
from dasp.data.video import MEAN, STD, corruption_image, frame_tensor, jpeg, read_frame


@settings(deadline=None, max_examples=25)
@given(st.integers(40, 700), st.integers(40, 700))
def test_any_size_becomes_the_size_of_the_model(width, height):
    frame = Image.new("RGB", (width, height), (255, 0, 0))
    tensor = frame_tensor(frame)
    assert tensor.shape == (3, 224, 224)
    assert corruption_image(frame).shape == (224, 224, 3)
    red = torch.tensor([(1 - MEAN[0]) / STD[0], -MEAN[1] / STD[1], -MEAN[2] / STD[2]])
    assert torch.allclose(tensor, red.view(3, 1, 1).expand(3, 224, 224), atol=1e-6)


def test_a_frame_of_the_right_size_is_only_scaled(media):
    pixels = media.picture(0, 224, 224)
    restored = frame_tensor(Image.fromarray(pixels)).permute(1, 2, 0) * torch.tensor(STD)
    restored = (restored + torch.tensor(MEAN)) * 255
    assert np.array_equal(restored.round().numpy().astype(np.uint8), pixels)


def test_the_middle_is_kept():
    pixels = np.zeros((224, 448, 3), np.uint8)
    pixels[:, 112:336] = 255
    assert np.isclose(frame_tensor(Image.fromarray(pixels))[0].min(), (1 - MEAN[0]) / STD[0])


def test_the_damaged_image_sees_less_at_the_borders_than_the_clean_one(media):
    frame = Image.fromarray(media.picture(0, 512, 512))
    small = frame.resize((256, 256), Image.Resampling.BILINEAR)
    assert np.array_equal(corruption_image(frame), np.array(small)[16:240, 16:240])


def test_grey_becomes_three_equal_channels(tmp_path):
    Image.new("L", (20, 10), 77).save(tmp_path / "grey.png")
    assert np.array(read_frame(tmp_path / "grey.png")).tolist() == [[[77] * 3] * 20] * 10


@pytest.mark.parametrize("mode", ["P", "RGBA", "LA", "1", "I;16", "CMYK"])
def test_other_colour_modes_are_refused_by_name(tmp_path, mode):
    path = tmp_path / ("frame.tif" if mode == "CMYK" else "frame.png")
    Image.new(mode, (32, 32)).save(path)
    with pytest.raises(DataError, match=rf"frame\.\w+ has colour mode {mode}"):
        read_frame(path)


def test_missing_empty_and_cut_off_files_are_named(tmp_path, media):
    with pytest.raises(DataError, match=r"no frame .*nothing\.jpg"):
        read_frame(tmp_path / "nothing.jpg")
    whole = jpeg(media.picture(0, 224, 224))
    for content in (b"", b"no picture", whole[: len(whole) // 2]):
        (tmp_path / "bad.jpg").write_bytes(content)
        with pytest.raises(DataError, match=r"cannot read the frame .*bad\.jpg"):
            read_frame(tmp_path / "bad.jpg")
