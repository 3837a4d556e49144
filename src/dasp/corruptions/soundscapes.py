"""Five background sounds synthesised from a generator: traffic, crowd, rain, thunder, wind.

Each takes (generator, samples, sample_rate) and returns (samples,) float64, scaled by its caller.
"""

import math

import numpy as np

from dasp.corruptions.kernels import Places
from dasp.corruptions.synthesis import Array, band_noise, bursts, drift, ringing, strike, to_rms

HEARD = 3.0  # a vehicle is heard up to this multiple of its nearest distance
HORN_CHORD = (415.0, 523.0)  # Hz
OVERTONES = np.arange(1, 17)
POINTS = 4096  # of one cycle of an engine or a horn, a power of two
TALKERS = 14
VOWELS = np.array(  # the first three resonances of a long throat in Hz: ee, e, a, o, oo, er
    [
        [270.0, 530.0, 730.0, 570.0, 300.0, 490.0],
        [2290.0, 1840.0, 1090.0, 840.0, 870.0, 1350.0],
        [3010.0, 2480.0, 2440.0, 2410.0, 2240.0, 1690.0],
    ]
).T
THROATS = np.concatenate((VOWELS, 1.17 * VOWELS))  # the long ones, then the short ones
WIDTHS, GAINS = np.array([80.0, 110.0, 160.0]), np.array([1.0, 0.45, 0.22])
MELODY_RATE = 100  # Hz


def traffic(generator: np.random.Generator, samples: int, sample_rate: int) -> Array:
    """Return a street: distant rumble, passing vehicles with tyres and engines, a horn."""
    seconds = samples / sample_rate
    time = np.arange(samples) / sample_rate
    tyres, tones = np.zeros(samples), np.zeros(samples)
    for moment in generator.uniform(-0.5, seconds + 0.5, 2 + generator.poisson(0.5 * seconds)):
        pace = generator.uniform(0.35, 0.9)  # seconds to travel one nearest distance
        loudness = generator.uniform(0.4, 1.0)
        here = _between(moment - HEARD * pace, moment + HEARD * pace, samples, sample_rate)
        distance = np.sqrt(1 + ((time[here] - moment) / pace) ** 2)
        near = np.maximum(0, (HEARD / distance - 1) / (HEARD - 1))
        doppler = generator.uniform(0.02, 0.06) * pace * distance
        engine = _buzz(generator, generator.uniform(45, 95), time[here] - doppler, sample_rate)
        tyres[here] += (loudness * near) ** 2
        tones[here] += loudness * near * engine
    for moment in generator.uniform(0, seconds, generator.poisson(0.12 * seconds)):
        length = generator.uniform(0.2, 0.7)
        here = _between(moment, moment + length, samples, sample_rate)
        swell = np.minimum(1, 20 * np.sin(np.pi * (time[here] - moment) / length))
        for note in HORN_CHORD * generator.uniform(0.85, 1.15, 1):
            tones[here] += 0.2 * swell * _buzz(generator, note, time[here], sample_rate)
    far = band_noise(generator, samples, sample_rate, 30, 120, 1.5)
    close = band_noise(generator, samples, sample_rate, 300, 900, 2.5)
    return 0.2 * far + 0.3 * np.sqrt(tyres) * close + 0.6 * tones


def _between(start: float, stop: float, samples: int, sample_rate: int) -> slice:
    """Return the samples of a period of time given in seconds."""
    return slice(*(min(max(math.ceil(at * sample_rate), 0), samples) for at in (start, stop)))


def _buzz(generator: np.random.Generator, hertz: float, time: Array, sample_rate: int) -> Array:
    """Return the sound of an engine or a horn: sixteen overtones of uneven strength."""
    gains = generator.uniform(0.3, 1.0, OVERTONES.size) / OVERTONES**0.7
    gains[OVERTONES * hertz > 0.4 * sample_rate] = 0
    shifts = generator.uniform(0, 2 * np.pi, OVERTONES.size)
    lines = np.append(0, gains * np.exp(1j * shifts))
    cycle = np.fft.irfft(lines, POINTS) * (POINTS / 2)
    return np.asarray(cycle[(time * (POINTS * hertz)).astype(np.intp) & (POINTS - 1)])


def crowd(generator: np.random.Generator, samples: int, sample_rate: int) -> Array:
    """Return babble: voices, their consonants, and a murmur in the background."""
    voices = [_talk(generator, samples / sample_rate) for _ in range(TALKERS)]
    moments, strengths, throats, onsets = map(np.concatenate, zip(*voices, strict=True))
    taps = int(0.02 * sample_rate)
    answers = np.stack([ringing(sample_rate, throat, WIDTHS, GAINS, taps) for throat in THROATS])
    vowels = strike(samples, sample_rate * moments, strengths, throats, answers)
    sharpness = generator.uniform(0, 1, onsets.size) ** 2
    hiss = bursts(onsets, sharpness, 0.03, samples, sample_rate)
    breath = band_noise(generator, samples, sample_rate, 2500, 6000, 3)
    murmur = band_noise(generator, samples, sample_rate, 150, 600, 1.5)
    return to_rms(vowels, 1.0) + 0.25 * hiss * breath + 0.2 * murmur


def _talk(generator: np.random.Generator, seconds: float) -> tuple[Array, Array, Places, Array]:
    """Return one talker's pulses of the vocal cords and the onsets of the syllables.

    Of each pulse the moment in seconds, the strength and the row of THROATS; onsets in seconds.
    """
    short = generator.random() < 0.5
    count = int(seconds / 0.12) + 8
    lengths = generator.uniform(0.14, 0.28, count)  # three to seven syllables per second
    pause = generator.random(count) < 0.12
    lengths[pause] *= 2
    starts = np.cumsum(lengths) - lengths - generator.uniform(0, 0.5)
    loudness = generator.uniform(0.3, 1.0, count) * generator.uniform(0.4, 1.0)
    loudness[pause] = 0
    vowels = generator.integers(len(VOWELS), size=count) + short * len(VOWELS)
    # The melody of a voice decides when the vocal cords close.
    points = int(seconds * MELODY_RATE) + 2
    pitch = (200 if short else 110) * generator.uniform(0.78, 1.22)
    hertz = pitch * np.exp(0.15 * drift(generator, points, MELODY_RATE, 1.0))
    cycles = np.cumsum(hertz) / MELODY_RATE
    closings = np.arange(cycles[0] + generator.random(), cycles[-1])
    moments = np.interp(closings, cycles, np.arange(points) / MELODY_RATE)
    syllable = np.searchsorted(starts, moments, side="right") - 1
    progress = np.clip((moments - starts[syllable]) / lengths[syllable], 0, 1)
    strengths = loudness[syllable] * np.sin(np.pi * progress) ** 2
    return moments, strengths, vowels[syllable], starts[~pause]


def rain(generator: np.random.Generator, samples: int, sample_rate: int) -> Array:
    """Return a downpour: the hiss of many distant drops and the patter of near ones."""
    kinds = np.geomspace(900, min(7000, 0.44 * sample_rate), 8)[:, None]  # Hz
    answers = [ringing(sample_rate, one, 0.15 * one + 200, np.ones(1), 512) for one in kinds]
    drops = generator.poisson(180 * (samples / sample_rate))
    where = generator.uniform(0, samples, drops)
    strengths = generator.lognormal(0, 0.7, drops) * generator.choice([-1.0, 1.0], drops)
    drop_kinds = generator.integers(len(kinds), size=drops)
    patter = strike(samples, where, strengths, drop_kinds, np.stack(answers))
    hiss = band_noise(generator, samples, sample_rate, 1200, 7000, 1.5)
    density = 1 + 0.1 * drift(generator, samples, sample_rate, 0.5)
    return density * hiss + 2.0 * patter


def thunder(generator: np.random.Generator, samples: int, sample_rate: int) -> Array:
    """Return a storm: each flash cracks, then rumbles as its more distant parts arrive."""
    seconds = samples / sample_rate
    first = generator.uniform(0, min(0.3 * seconds, 2.0))
    flashes = first + np.cumsum(np.append(0, generator.uniform(2.5, 5.0, int(seconds / 2.5))))
    loudness = generator.uniform(0.5, 1.0, (flashes.size, 1))
    # Each flash has 24 arrivals, weaker with time, and five sharp ones at its start.
    delays = generator.exponential(0.9, (flashes.size, 24))
    weights = loudness * generator.uniform(0.2, 1.0, delays.shape) * np.exp(-delays / 1.2)
    rolls = bursts(flashes[:, None] + delays, weights, 0.22, samples, sample_rate)
    snaps = np.arange(5) * generator.exponential(0.08, (flashes.size, 5))
    weights = loudness * np.power(0.7, np.arange(5))
    cracks = bursts(flashes[:, None] + snaps, weights, 0.04, samples, sample_rate)
    rumble = band_noise(generator, samples, sample_rate, 30, 120, 1.8)
    tearing = band_noise(generator, samples, sample_rate, 100, 900, 1.5)
    distance = band_noise(generator, samples, sample_rate, 200, 3000, 1.5)
    return rolls * rumble + 0.8 * cracks * tearing + 0.03 * distance


def wind(generator: np.random.Generator, samples: int, sample_rate: int) -> Array:
    """Return gusts: a roar that swells and brightens with the wind's speed, and a howl."""
    slow = drift(generator, samples, sample_rate, 0.25)
    quick = drift(generator, samples, sample_rate, 2.0)
    speed = np.exp(0.65 * slow + 0.15 * quick)
    roar = band_noise(generator, samples, sample_rate, 20, 90, 1.7)
    rush = band_noise(generator, samples, sample_rate, 250, 600, 2.5)
    pitch = 380 * np.exp(0.25 * slow + 0.06 * drift(generator, samples, sample_rate, 1.0))
    tone = np.sin(2 * np.pi / sample_rate * np.cumsum(pitch))
    howl = drift(generator, samples, sample_rate, 8.0) * tone
    return speed * roar + 0.3 * speed**2 * rush + 0.15 * speed**2 * howl
