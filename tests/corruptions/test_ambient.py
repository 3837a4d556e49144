import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dasp.core.errors import InputError, OptionError
from dasp.core.seeding import numpy_generator
from dasp.corruptions import corrupt_sound, names
from dasp.corruptions.base import registry

SOUNDS = ["gaussian_noise", "traffic", "crowd", "rain", "thunder", "wind"]
SURROUNDINGS = SOUNDS[1:]
RATE = 16000

# The first 16 digits of the SHA-256 of two seconds as 16-bit samples, severities 1 to 5. Whoever
# has the same digits has the same sounds.
CHECKSUMS = {
    "gaussian_noise": [
        "f22962d9c891ba55",
        "804cfdf220ce37ed",
        "d38f1e6772b341b5",
        "6131998c9f534c80",
        "67406eae78d345a5",
    ],
    "traffic": [
        "f2e2824a65b797c8",
        "1aa26ebc149f4b38",
        "be8c51de0526be98",
        "4b1be00b3fd1056b",
        "0985fb8bf1dbc5d6",
    ],
    "crowd": [
        "c3123820d85969b2",
        "e6af89a920c504dd",
        "fb895ba086116363",
        "6f2e54b66433698e",
        "aa21ea1de7e82d36",
    ],
    "rain": [
        "1e80c78f44334b80",
        "d24f70267b0d0bab",
        "c0d11fc00dc4e7c6",
        "2df5fafb54524d3e",
        "ade08dc7497cbce2",
    ],
    "thunder": [
        "a69f406fa7363aa3",
        "4a0b4b913e8917fb",
        "a15310b92228755b",
        "f53f1081a3425644",
        "edfe1098b0a1ea8f",
    ],
    "wind": [
        "760000b20d12e1b9",
        "05d519ddd74bd641",
        "54d23d31bbbde745",
        "f2a1136a1635a23a",
        "d4c06279e5070b63",
    ],
}


def clip(seconds=2.0, level=0.02, rate=RATE):
    wave = level * numpy_generator(0, "clip").standard_normal(int(seconds * rate))
    return wave.astype(np.float32)


def rms(sound):
    return float(np.sqrt(np.mean(np.square(sound, dtype=np.float64))))


def test_names_and_families():
    assert names("audio") == SOUNDS
    families = [registry("audio")[name].family for name in SOUNDS]
    assert families == ["noise"] * 3 + ["weather"] * 3
    assert [registry("audio")[name].takes_folder for name in SOUNDS] == [False] + [True] * 5


@pytest.mark.same_bytes
@pytest.mark.parametrize("name", SOUNDS)
def test_checksums(name):
    digests = [
        hashlib.sha256(
            (corrupt_sound(clip(), name, severity, sample_id="clip") * 32768).astype("<i2")
        ).hexdigest()[:16]
        for severity in range(1, 6)
    ]
    assert digests == CHECKSUMS[name]


@pytest.mark.parametrize("name", SOUNDS)
def test_severity_zero_is_a_copy(name):
    wave = clip(0.01)
    same = corrupt_sound(wave, name, 0)
    assert np.array_equal(same, wave)
    assert not np.shares_memory(same, wave)


@pytest.mark.parametrize("name", SOUNDS)
def test_the_same_seed_and_sample_give_the_same_bytes_in_any_order(name):
    ids = ["a", "b", "c"]
    forward = {key: corrupt_sound(clip(0.3), name, 3, 7, key).tobytes() for key in ids}
    np.random.default_rng(1).standard_normal(5)
    backward = {key: corrupt_sound(clip(0.3), name, 3, 7, key).tobytes() for key in ids[::-1]}
    assert forward == backward
    assert len(set(forward.values())) == 3
    assert corrupt_sound(clip(0.3), name, 3, 8, "a").tobytes() != forward["a"]


@pytest.mark.parametrize("name", SOUNDS)
def test_the_input_is_left_alone(name):
    wave = clip(0.1)
    wave.setflags(write=False)
    before = wave.copy()
    corrupt_sound(wave, name, 5)
    assert np.array_equal(wave, before)


@pytest.mark.parametrize("name", SOUNDS)
@pytest.mark.parametrize("level", [0.001, 0.1, 0.9])
def test_each_severity_is_noisier_than_the_last(name, level):
    wave = np.clip(clip(level=level), -1, 1)
    ratios = [
        np.mean([rms(corrupt_sound(wave, name, severity, seed) - wave) for seed in range(2)])
        for severity in range(6)
    ]
    assert ratios[0] == 0
    assert np.all(np.diff(ratios) > 0)


@pytest.mark.parametrize(("severity", "sigma"), list(enumerate([0.08, 0.12, 0.18, 0.26, 0.38], 1)))
def test_white_noise_has_its_amplitude(severity, sigma):
    noise = corrupt_sound(np.zeros(100_000, np.float32), "gaussian_noise", severity)
    assert rms(noise) == pytest.approx(sigma, rel=0.02)
    spectrum = np.abs(np.fft.rfft(noise)) ** 2
    parts = [part.mean() for part in np.array_split(spectrum[1:], 8)]
    assert max(parts) < 1.1 * min(parts)


@pytest.mark.parametrize("name", SURROUNDINGS)
@pytest.mark.parametrize(("severity", "decibels"), list(enumerate([1, 2, 4, 6, 8], 1)))
def test_surroundings_have_the_reference_level(name, severity, decibels):
    """A tenth of full scale, raised by the gain of the severity; clipping takes a little away."""
    noise = corrupt_sound(np.zeros(3 * RATE, np.float32), name, severity, 1)
    assert -1.0 < 20 * np.log10(rms(noise) / 0.1) - decibels < 0.01


@settings(deadline=None)
@given(
    name=st.sampled_from(SOUNDS),
    samples=st.integers(1, 3000),
    rate=st.sampled_from([8000, 11025, 16000, 22050, 44100, 48000, 192000]),
    severity=st.integers(1, 5),
    level=st.floats(0, 2),
    seed=st.integers(0, 2**31 - 1),
)
def test_any_length_and_rate(name, samples, rate, severity, level, seed):
    wave = (level * numpy_generator(seed, "any").uniform(-1, 1, samples)).astype(np.float32)
    got = corrupt_sound(wave, name, severity, seed, "x", rate)
    assert got.shape == wave.shape
    assert got.dtype == np.float32
    assert np.all((got >= -1) & (got < 1))
    assert np.array_equal(got * 32768, np.rint(got * 32768))  # on the 16-bit grid
    assert np.array_equal(got, corrupt_sound(wave, name, severity, seed, "x", rate))


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
    with pytest.raises(InputError, match="not numbers"):
        corrupt_sound(np.array([0, np.inf], np.float32), name, 1)


@pytest.mark.parametrize("severity", [-1, 6, True, 2.5])
def test_other_severities_are_refused(severity):
    with pytest.raises(OptionError, match="severity"):
        corrupt_sound(np.zeros(9, np.float32), "rain", severity)
