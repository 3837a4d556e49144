"""Four surroundings (the fifth, a crowd, lives in `babble`) made from nothing but a generator.

Each takes (generator, samples, sample_rate) and returns (samples,) float64, scaled by its caller.
"""

import math

import numpy as np

from dasp.corruptions.synthesis import (
    Array,
    band,
    bursts,
    drift,
    ringing,
    shaped_noise,
    strike,
)

HEARD = 3.0  # a vehicle is heard up to this many times its nearest distance
HORN_CHORD = (415.0, 523.0)  # Hz
OVERTONES = np.arange(1, 17)


def traffic(generator: np.random.Generator, samples: int, sample_rate: int) -> Array:
    """A street: a far rumble, vehicles that come, pass and go on tyres and engines, a horn."""
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
    far = shaped_noise(generator, samples, sample_rate, band(30, 120, 1.5))
    close = shaped_noise(generator, samples, sample_rate, band(300, 900, 2.5))
    return 0.2 * far + 0.3 * np.sqrt(tyres) * close + 0.6 * tones


def _between(start: float, stop: float, samples: int, sample_rate: int) -> slice:
    """Return the samples of a stretch of time, given in seconds."""
    return slice(*(min(max(math.ceil(at * sample_rate), 0), samples) for at in (start, stop)))


def _buzz(generator: np.random.Generator, hertz: float, time: Array, sample_rate: int) -> Array:
    """Return the sound of an engine or a horn: sixteen overtones of uneven strength."""
    gains = generator.uniform(0.3, 1.0, OVERTONES.size) / OVERTONES**0.7
    gains[OVERTONES * hertz > 0.4 * sample_rate] = 0
    shifts = generator.uniform(0, 2 * np.pi, OVERTONES.size)
    cycle = np.sin(np.arange(4096)[:, None] * (2 * np.pi / 4096) * OVERTONES + shifts) @ gains
    return np.asarray(cycle[(time * (4096 * hertz)).astype(np.intp) & 4095])


def rain(generator: np.random.Generator, samples: int, sample_rate: int) -> Array:
    """A downpour: the hiss of countless far drops under the patter of near ones."""
    seconds = samples / sample_rate
    kinds = 8
    hertz = np.geomspace(900, min(7000, 0.44 * sample_rate), kinds)
    answers = [
        ringing(sample_rate, one, 0.15 * one + 200, np.ones(1), 512) for one in hertz[:, None]
    ]
    drops = generator.poisson(180 * seconds)
    where = generator.uniform(0, samples, drops)
    strengths = generator.lognormal(0, 0.7, drops) * generator.choice([-1.0, 1.0], drops)
    drop_kinds = generator.integers(kinds, size=drops)
    patter = strike(samples, where, strengths, drop_kinds, np.stack(answers))
    hiss = shaped_noise(generator, samples, sample_rate, band(1200, 7000, 1.5))
    density = 1 + 0.1 * drift(generator, samples, sample_rate, 0.5)
    return density * hiss + 2.0 * patter


def thunder(generator: np.random.Generator, samples: int, sample_rate: int) -> Array:
    """A storm: each flash cracks, then rolls on as the sound of its farther parts arrives."""
    seconds = samples / sample_rate
    first = generator.uniform(0, min(0.3 * seconds, 2.0))
    flashes = first + np.cumsum(np.append(0, generator.uniform(2.5, 5.0, int(seconds / 2.5))))
    loudness = generator.uniform(0.5, 1.0, (flashes.size, 1))
    # Each flash is heard as 24 arrivals, the later the weaker, and five sharp ones at its start.
    delays = generator.exponential(0.9, (flashes.size, 24))
    weights = loudness * generator.uniform(0.2, 1.0, delays.shape) * np.exp(-delays / 1.2)
    rolls = bursts(flashes[:, None] + delays, weights, 0.22, samples, sample_rate)
    snaps = np.arange(5) * generator.exponential(0.08, (flashes.size, 5))
    weights = loudness * np.power(0.7, np.arange(5))
    cracks = bursts(flashes[:, None] + snaps, weights, 0.04, samples, sample_rate)
    rumble = shaped_noise(generator, samples, sample_rate, band(30, 120, 1.8))
    tearing = shaped_noise(generator, samples, sample_rate, band(100, 900, 1.5))
    distance = shaped_noise(generator, samples, sample_rate, band(200, 3000, 1.5))
    return rolls * rumble + 0.8 * cracks * tearing + 0.03 * distance


def wind(generator: np.random.Generator, samples: int, sample_rate: int) -> Array:
    """Gusts: a roar that swells and brightens with the wind's speed, and a howl that follows it."""
    slow = drift(generator, samples, sample_rate, 0.25)
    quick = drift(generator, samples, sample_rate, 2.0)
    speed = np.exp(0.65 * slow + 0.15 * quick)
    roar = shaped_noise(generator, samples, sample_rate, band(20, 90, 1.7))
    rush = shaped_noise(generator, samples, sample_rate, band(250, 600, 2.5))
    pitch = 380 * np.exp(0.25 * slow + 0.06 * drift(generator, samples, sample_rate, 1.0))
    howl = drift(generator, samples, sample_rate, 8.0) * np.sin(
        2 * np.pi / sample_rate * np.cumsum(pitch)
    )
    return speed * roar + 0.3 * speed**2 * rush + 0.15 * speed**2 * howl
