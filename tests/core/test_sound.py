import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dasp.core.errors import InputError
from dasp.core.seeding import numpy_generator
from dasp.core.sound import resample

RATES = [8000, 11025, 16000, 44100, 48000]


def tone(hertz, rate, seconds=0.4):
    return np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate).astype(np.float32)


def inner(wave, part=0.1):
    """Leave out the ends, where the silence around the wave is heard."""
    cut = int(wave.size * part)
    return wave[cut:-cut]


@pytest.mark.parametrize(
    ("from_rate", "to_rate"),
    [(8000, 16000), (16000, 8000), (11025, 16000), (44100, 16000), (16000, 44100), (8000, 8001)],
)
def test_a_tone_stays_the_same_tone(from_rate, to_rate):
    hertz = 0.44 * min(from_rate, to_rate)  # 0.88 of the lower Nyquist frequency
    for frequency in (0.0, 100.0, 1234.5, hertz):
        got = resample(tone(frequency, from_rate) + 1, from_rate, to_rate)
        want = tone(frequency, to_rate, 0.5)[: got.size] + 1
        np.testing.assert_allclose(inner(got), inner(want), atol=2e-4)


@pytest.mark.parametrize(("hertz", "rate"), [(8100, 44100), (12000, 44100), (20000, 48000)])
def test_what_is_above_the_new_nyquist_is_silenced(hertz, rate):
    residue = inner(resample(tone(hertz, rate), rate, 16000))
    assert np.sqrt(np.mean(residue**2)) < 10 ** (-80 / 20)


def test_no_images_appear_when_going_up():
    wave = inner(resample(tone(3000, 8000), 8000, 16000))
    power = np.abs(np.fft.rfft(wave * np.hanning(wave.size))) ** 2
    hertz = np.fft.rfftfreq(wave.size, 1 / 16000)
    assert power[hertz > 4000].max() < 1e-8 * power.max()


@given(
    st.integers(0, 700), st.sampled_from(RATES), st.sampled_from(RATES), st.integers(0, 2**31 - 1)
)
def test_length_and_linearity(samples, from_rate, to_rate, seed):
    first, second = (0.1 * numpy_generator(seed, "resample").standard_normal((2, samples))).astype(
        np.float32
    )
    got = resample(first, from_rate, to_rate)
    assert got.dtype == np.float32
    assert got.size == -(-samples * to_rate // from_rate)
    together = resample(first + second, from_rate, to_rate)
    np.testing.assert_allclose(together, got + resample(second, from_rate, to_rate), atol=1e-6)


def test_the_same_rate_returns_a_copy():
    wave = tone(100, 8000)
    same = resample(wave, 8000, 8000)
    assert np.array_equal(same, wave)
    assert not np.shares_memory(same, wave)


def test_other_arrays_and_rates_are_refused():
    for wave in (np.zeros((2, 5), np.float32), np.zeros(5, np.int16)):
        with pytest.raises(InputError, match="float array"):
            resample(wave, 8000, 16000)
    for rate in (0, -1, 0.5):
        with pytest.raises(InputError, match="sampling rate"):
            resample(np.zeros(5, np.float32), rate, 16000)
