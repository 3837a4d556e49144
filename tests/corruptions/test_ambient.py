"""White noise and background sounds: levels, clipping, recordings of the user."""

import sys

import numpy as np
import pytest
import soundfile

from dasp.core.errors import DataError, InputError
from dasp.corruptions import corrupt_sound
from dasp.corruptions.ambient import recorded_noise
from dasp.streams.protocols import PUBLISHED

SOUNDS = PUBLISHED["audio"]
RATE = 16000


def rms(sound):
    return float(np.sqrt(np.mean(np.square(sound, dtype=np.float64))))


@pytest.mark.parametrize(("severity", "sigma"), list(enumerate([0.08, 0.12, 0.18, 0.26, 0.38], 1)))
def test_white_noise_has_its_amplitude(severity, sigma):
    noise = corrupt_sound(np.zeros(100_000, np.float32), "gaussian_noise", severity)
    assert rms(noise) == pytest.approx(sigma, rel=0.02)
    spectrum = np.abs(np.fft.rfft(noise)) ** 2
    parts = [part.mean() for part in np.array_split(spectrum[1:], 8)]
    assert max(parts) < 1.1 * min(parts)


@pytest.mark.parametrize("name", SOUNDS[1:])
@pytest.mark.parametrize(("severity", "decibels"), list(enumerate([1, 2, 4, 6, 8], 1)))
def test_surroundings_have_the_reference_level(name, severity, decibels):
    """A tenth of full scale, raised by the gain of the severity; clipping takes a little away."""
    noise = corrupt_sound(np.zeros(3 * RATE, np.float32), name, severity, 1)
    assert -1.0 < 20 * np.log10(rms(noise) / 0.1) - decibels < 0.01


@pytest.mark.parametrize("name", SOUNDS)
def test_a_full_scale_clip_stays_in_range(name):
    wave = np.where(np.arange(RATE) % 2, 1, -1).astype(np.float32)
    got = corrupt_sound(wave, name, 5)
    assert got.min() == -1
    assert got.max() == np.float32(32767 / 32768)


@pytest.mark.parametrize("name", SOUNDS)
def test_too_low_a_rate_and_broken_samples_are_refused(name):
    with pytest.raises(InputError, match="7999 Hz"):
        corrupt_sound(np.zeros(9, np.float32), name, 1, sample_rate=7999)
    with pytest.raises(InputError, match="NaN"):
        corrupt_sound(np.array([0, np.inf], np.float32), name, 1)


def tone(hertz, rate, seconds):
    return 0.25 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)


def test_a_recording_is_trimmed_or_repeated_from_its_start(tmp_path):
    wave = np.array([1, 2, 3], np.int16)
    soundfile.write(tmp_path / "wind.wav", wave, RATE)
    assert np.array_equal(recorded_noise(tmp_path, "wind", 2, RATE) * 32768, [1, 2])
    longer = recorded_noise(str(tmp_path), "wind", 8, RATE)
    assert np.array_equal(longer * 32768, [1, 2, 3, 1, 2, 3, 1, 2])


def test_stereo_at_another_rate_is_mixed_and_resampled(tmp_path):
    left, right = tone(500, 44100, 1.0), tone(500, 44100, 1.0) * 0.5
    soundfile.write(tmp_path / "crowd.wav", np.stack([left, right], 1), 44100)
    got = recorded_noise(tmp_path, "crowd", RATE, RATE)
    np.testing.assert_allclose(got[500:-500], 0.75 * tone(500, RATE, 1.0)[500:-500], atol=2e-4)


@pytest.mark.parametrize("severity", range(1, 6))
def test_the_gain_of_each_severity(tmp_path, severity):
    noise = np.round(tone(440, RATE, 1.5) * 8192) / 32768  # quiet: nothing clips
    soundfile.write(tmp_path / "traffic.wav", noise, RATE)
    wave = np.linspace(-0.3, 0.3, RATE, dtype=np.float32)
    got = corrupt_sound(wave, "traffic", severity, noise_dir=tmp_path)
    gain = 10 ** ((1, 2, 4, 6, 8)[severity - 1] / 20)
    np.testing.assert_allclose(got, wave + gain * noise[:RATE], atol=1.01 / 32768)


def test_the_gain_and_the_sum_both_clip(tmp_path):
    soundfile.write(tmp_path / "thunder.wav", np.full(10, 0.75), RATE)
    highest = np.float32(32767 / 32768)
    for level, heard in ((-0.5, highest - np.float32(0.5)), (0.5, highest)):
        wave = np.full(10, level, np.float32)
        assert np.all(corrupt_sound(wave, "thunder", 5, noise_dir=tmp_path) == heard)


def test_a_changed_file_is_read_again(tmp_path):
    path = tmp_path / "rain.wav"
    soundfile.write(path, np.array([1, 1], np.int16), RATE)
    assert recorded_noise(tmp_path, "rain", 1, RATE)[0] * 32768 == 1
    soundfile.write(path, np.array([5, 5, 5], np.int16), RATE)
    assert recorded_noise(tmp_path, "rain", 1, RATE)[0] * 32768 == 5


def test_a_missing_recording_is_named_and_white_noise_needs_none(tmp_path):
    wave = np.zeros(9, np.float32)
    with pytest.raises(DataError, match=r"no recording .*rain\.wav.*has traffic\.wav"):
        corrupt_sound(wave, "rain", 1, noise_dir=tmp_path)
    white = corrupt_sound(wave, "gaussian_noise", 1, noise_dir=tmp_path)
    assert np.array_equal(white, corrupt_sound(wave, "gaussian_noise", 1))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (np.zeros(0), r"rain\.wav is empty"),
        (np.array([0.0, np.nan]), r"rain\.wav contains NaN"),
        (b"RIFF\x00\x00", r"cannot read .*rain\.wav"),
        (b"not a sound at all" * 10, r"cannot read .*rain\.wav"),
    ],
)
def test_a_damaged_recording_is_named(tmp_path, content, fault):
    path = tmp_path / "rain.wav"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        soundfile.write(path, content, RATE, subtype="FLOAT")
    with pytest.raises(DataError, match=fault):
        recorded_noise(tmp_path, "rain", 10, RATE)


def test_without_soundfile_the_extra_is_named(tmp_path, monkeypatch):
    soundfile.write(tmp_path / "rain.wav", np.ones(3), RATE)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(DataError, match=r"dasp-tta\[media\]"):
        recorded_noise(tmp_path, "rain", 10, RATE)


def test_a_short_sound_takes_any_part_of_a_recording(tmp_path):
    silence, loud = np.zeros(3 * RATE, np.int16), np.full(3 * RATE, 3000, np.int16)
    soundfile.write(tmp_path / "thunder.wav", np.concatenate([silence, loud]), RATE)
    word, scene = (np.zeros(size, np.float32) for size in (9600, 2 * RATE))
    ids = [str(number) for number in range(20)]
    heard = [corrupt_sound(word, "thunder", 1, 0, name, noise_dir=tmp_path).mean() for name in ids]
    assert min(heard) == 0
    assert max(heard) > 0.09
    for name in ids:
        assert not corrupt_sound(scene, "thunder", 1, 0, name, noise_dir=tmp_path).any()
