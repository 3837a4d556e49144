import sys

import numpy as np
import pytest
import soundfile

from dasp.core.errors import DataError
from dasp.corruptions import corrupt_sound
from dasp.corruptions.recordings import recorded_noise

RATE = 16000


def tone(hertz, rate, seconds):
    return 0.25 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)


def test_a_recording_is_trimmed_from_its_start(tmp_path):
    wave = np.arange(-1000, 1000, dtype=np.int16)
    soundfile.write(tmp_path / "rain.wav", wave, RATE)
    got = recorded_noise(tmp_path, "rain", 50, RATE)
    assert np.array_equal(got, wave[:50].astype(np.float32) / 32768)


def test_a_short_recording_is_looped(tmp_path):
    wave = np.array([1, 2, 3], np.int16)
    soundfile.write(tmp_path / "wind.wav", wave, RATE)
    got = recorded_noise(str(tmp_path), "wind", 8, RATE)
    assert np.array_equal(got * 32768, [1, 2, 3, 1, 2, 3, 1, 2])


def test_stereo_at_another_rate_is_mixed_and_resampled(tmp_path):
    left, right = tone(500, 44100, 1.0), tone(500, 44100, 1.0) * 0.5
    soundfile.write(tmp_path / "crowd.wav", np.stack([left, right], 1), 44100)
    got = recorded_noise(tmp_path, "crowd", RATE, RATE)
    np.testing.assert_allclose(got[500:-500], 0.75 * tone(500, RATE, 1.0)[500:-500], atol=2e-4)


@pytest.mark.parametrize("severity", range(1, 6))
def test_the_gain_of_each_severity(tmp_path, severity):
    noise = np.round(tone(440, RATE, 0.5) * 8192) / 32768  # quiet: nothing clips
    soundfile.write(tmp_path / "traffic.wav", noise, RATE)
    wave = np.linspace(-0.3, 0.3, 4000, dtype=np.float32)
    got = corrupt_sound(wave, "traffic", severity, noise_dir=tmp_path)
    gain = 10 ** ((1, 2, 4, 6, 8)[severity - 1] / 20)
    np.testing.assert_allclose(got, wave + gain * noise[:4000], atol=1.01 / 32768)


def test_the_gain_and_the_sum_both_clip(tmp_path):
    soundfile.write(tmp_path / "thunder.wav", np.full(10, 0.75), RATE)
    down, up = np.full(10, -0.5, np.float32), np.full(10, 0.5, np.float32)
    clipped = 32767 / 32768
    assert np.all(
        corrupt_sound(down, "thunder", 5, noise_dir=tmp_path) == np.float32(clipped - 0.5)
    )
    assert np.all(corrupt_sound(up, "thunder", 5, noise_dir=tmp_path) == np.float32(clipped))


def test_a_changed_file_is_read_again(tmp_path):
    path = tmp_path / "rain.wav"
    soundfile.write(path, np.array([1, 1], np.int16), RATE)
    assert recorded_noise(tmp_path, "rain", 1, RATE)[0] * 32768 == 1
    soundfile.write(path, np.array([5, 5, 5], np.int16), RATE)
    assert recorded_noise(tmp_path, "rain", 1, RATE)[0] * 32768 == 5


def test_a_missing_recording_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no recording .*rain\.wav.*holds traffic\.wav"):
        corrupt_sound(np.zeros(9, np.float32), "rain", 1, noise_dir=tmp_path)


def test_an_empty_recording_is_named(tmp_path):
    soundfile.write(tmp_path / "rain.wav", np.zeros(0), RATE)
    with pytest.raises(DataError, match=r"rain\.wav holds no sound"):
        recorded_noise(tmp_path, "rain", 10, RATE)


@pytest.mark.parametrize("content", [b"", b"RIFF\x00\x00", b"not a sound at all" * 10])
def test_a_damaged_recording_is_named(tmp_path, content):
    (tmp_path / "rain.wav").write_bytes(content)
    with pytest.raises(DataError, match=r"cannot read .*rain\.wav"):
        recorded_noise(tmp_path, "rain", 10, RATE)


def test_values_that_are_not_numbers_are_named(tmp_path):
    soundfile.write(tmp_path / "rain.wav", np.array([0.0, np.nan]), RATE, subtype="FLOAT")
    with pytest.raises(DataError, match=r"rain\.wav holds values that are not numbers"):
        recorded_noise(tmp_path, "rain", 10, RATE)


def test_without_soundfile_the_extra_is_named(tmp_path, monkeypatch):
    soundfile.write(tmp_path / "rain.wav", np.ones(3), RATE)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(DataError, match=r"dasp-tta\[media\]"):
        recorded_noise(tmp_path, "rain", 10, RATE)


def test_white_noise_needs_no_folder(tmp_path):
    wave = np.zeros(10, np.float32)
    with_folder = corrupt_sound(wave, "gaussian_noise", 1, noise_dir=tmp_path)
    assert np.array_equal(with_folder, corrupt_sound(wave, "gaussian_noise", 1))
