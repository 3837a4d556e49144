import base64
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from dasp.core.sound import pcm16
from dasp.page.pictures import frame_picture, heat_picture, input_picture, wav_file


def read(url):
    return np.array(Image.open(BytesIO(base64.b64decode(url.split(",")[1]))).convert("RGB"))


def test_a_frame_comes_back_and_a_spectrogram_has_time_to_the_right_and_low_pitch_below():
    frame = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    assert np.array_equal(read(frame_picture(frame)), frame)
    values = np.zeros((20, 10), np.float32)  # (time, pitch)
    values[15:, :3] = 1  # late and low
    light = read(heat_picture(values)).sum(axis=2)
    assert light.shape == (10, 20)
    assert light[8, 17] > 2 * max(light[2, 17], light[8, 3])


@pytest.mark.parametrize(
    ("shape", "size"),
    [((3, 8, 6), (8, 6)), ((1, 8, 6), (8, 6)), ((30, 7), (7, 30)), ((1024, 128), (16, 128)),
     ((5,), None), ((2, 3, 4, 5), None)],
)  # fmt: skip
def test_inputs_that_look_like_pictures_are_shown(shape, size):
    url = input_picture(torch.rand(shape))
    assert (url and read(url).shape[:2]) == size
    assert (input_picture(torch.ones(shape)) is None) == (size is None)
    assert input_picture(torch.full(shape, torch.nan)) is None


def test_a_wav_file_holds_the_samples():
    soundfile = pytest.importorskip("soundfile")
    wave = np.sin(np.arange(300, dtype=np.float32)).astype(np.float32) * 0.9
    samples, rate = soundfile.read(BytesIO(wav_file(wave, 8000)), dtype="int16")
    assert rate == 8000
    assert np.array_equal(samples, pcm16(wave))
