"""Corruptions of body-worn inertial sensors: accelerometers, gyroscopes and magnetometers.

A signal is (steps, triads, 3): a triad is the x, y and z axis of one sensor of one unit. The
functions below receive it in the unit of each kind of sensor: 1 g, 1 rad/s, the earth's magnetic
field. Severity 1 is a poor consumer device, severity 5 one that fails.

What is imitated, and who measured or used it:
Um et al., "Data augmentation of wearable sensor data for Parkinson's disease monitoring using
convolutional neural networks", ICMI 2017 (noise, gain, rotation); Woodman, "An introduction to
inertial navigation", Cambridge 2007 (noise, bias, drift, quantisation); Stisen et al., "Smart
devices are different", SenSys 2015 (bias, gain and unsteady clocks of phones and watches); Banos
et al., "Dealing with the effects of sensor displacement in wearable activity recognition", Sensors
2014 (units strapped on differently); Krause et al., "Trading off prediction accuracy and power
consumption for context-aware wearable computing", ISWC 2005 (lower rates to save energy). Where
none of them gives a size (dead axes, lost samples, swapped units), it is our choice.

Results are computed in float64 and rounded to steps of 2⁻¹², finer than such sensors resolve:
the last bits of a float64 depend on the processor, the rounded signal does not.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dasp.core.errors import InputError
from dasp.core.sensors import SENSORS, kinds_of
from dasp.corruptions.base import check_array, corrupt, corruption

Signal = NDArray[np.float32]  # (steps, triads, 3); m/s², rad/s or shares of the earth's field
Floats = NDArray[np.float64]

GRID = 2.0**-12
BURST = 5  # samples that are lost at once on average


@dataclass(frozen=True)
class WornOn:
    """What the triads of a signal belong to, and what the other units measure at that time."""

    one_unit: bool  # the three sensors of one unit; else one kind of sensor of several units
    others: Floats | None = None  # (n, steps, triads, 3)

    def per_unit(self, triads: int) -> int:
        """Return the number of independent draws for so many triads: one per unit."""
        return 1 if self.one_unit else triads


inertial = partial(corruption, "inertial")


def corrupt_inertial(
    signal: Signal,
    modality: str,
    name: str,
    severity: int,
    seed: int = 0,
    sample_id: str = "",
    others: Signal | None = None,
) -> Signal:
    """Corrupt one signal: (steps, triads, 3) float32 in and out; severity 0 returns a copy.

    `modality` is a kind of sensor, of which each triad is one, or a body unit, whose triads are
    its accelerometer, gyroscope and magnetometer. `others` (n, steps, triads, 3) are the signals
    of the other units at that time, with one of which a unit may be swapped.
    The result depends only on (seed, modality, name, severity, sample_id) and the signals.
    """
    _check(signal, modality)
    one_unit = modality not in SENSORS
    kinds = kinds_of(modality, signal.shape[1])
    scale = np.array([SENSORS[kind] for kind in kinds])[:, None]  # (triads, 1)
    body = WornOn(one_unit, None if others is None else others.astype(np.float64) / scale)
    values = signal.astype(np.float64) / scale
    damaged = corrupt(modality, values, name, severity, seed, sample_id, body)
    if severity == 0:
        return signal.copy()
    return np.asarray(np.rint(damaged * scale / GRID) * GRID, np.float32)


def _check(signal: Signal, modality: str) -> None:
    wanted = "an inertial signal must be a non-empty (steps, triads, 3) float32"
    check_array(signal, np.float32, 3, wanted, "put the x, y, z of each sensor side by side first")
    if not np.isfinite(signal).all():
        raise InputError("the signal contains NaN or infinite values: read the file again.")
    if modality not in SENSORS and signal.shape[1] != len(SENSORS):
        raise InputError(
            f"'{modality}' has {signal.shape[1]} triads; a body unit has {len(SENSORS)}: "
            f"{', '.join(SENSORS)}."
        )


@inertial("noise", family="noise")
def noise(signal: Floats, severity: int, generator: np.random.Generator, _: WornOn) -> Floats:
    """Add white noise; 0.05 g is the jitter of Um et al."""
    sigma = (0.05, 0.1, 0.2, 0.4, 0.8)[severity - 1]
    return signal + sigma * generator.standard_normal(signal.shape)


@inertial("bias", family="calibration")
def bias(signal: Floats, severity: int, generator: np.random.Generator, _: WornOn) -> Floats:
    """Add a constant to each axis: an uncalibrated zero (Woodman; Stisen et al.)."""
    size = (0.05, 0.1, 0.2, 0.4, 0.8)[severity - 1]
    return signal + size * _signs(signal, generator)


@inertial("drift", family="calibration")
def drift(signal: Floats, severity: int, generator: np.random.Generator, _: WornOn) -> Floats:
    """Add a random walk to each axis: a zero that moves with temperature (Woodman)."""
    end = (0.1, 0.2, 0.4, 0.8, 1.6)[severity - 1]  # its spread after the last step
    steps = generator.standard_normal(signal.shape)
    return np.asarray(signal + end * np.cumsum(steps, axis=0) / np.sqrt(len(signal)))


@inertial("gain", family="calibration")
def gain(signal: Floats, severity: int, generator: np.random.Generator, _: WornOn) -> Floats:
    """Multiply or divide each axis by a factor: a wrong scale; 1.1 as in Um et al."""
    factor = (1.1, 1.25, 1.5, 2.0, 3.0)[severity - 1]
    return signal * np.where(_signs(signal, generator) > 0, factor, 1 / factor)


@inertial("clipping", family="digital")
def clipping(signal: Floats, severity: int, _: np.random.Generator, __: WornOn) -> Floats:
    """Cut values beyond the range: a sensor set to a range that is too small."""
    limit = (1.5, 1.0, 0.7, 0.4, 0.2)[severity - 1]
    return np.clip(signal, -limit, limit)


@inertial("dropout", family="transmission")
def dropout(signal: Floats, severity: int, generator: np.random.Generator, body: WornOn) -> Floats:
    """Lose samples in bursts; the receiver repeats the last one that arrived."""
    share = (0.1, 0.2, 0.35, 0.5, 0.7)[severity - 1]
    steps, triads, _ = signal.shape
    units = body.per_unit(triads)
    lost = np.zeros((steps, units), bool)
    for unit in range(units):
        while lost[:, unit].mean() < share:
            start = int(generator.integers(0, steps))
            lost[start : start + int(generator.geometric(1 / BURST)), unit] = True
    place = np.where(lost, -1, np.arange(steps)[:, None])
    held = np.maximum.accumulate(place, axis=0)  # -1: nothing has arrived yet
    last = np.broadcast_to(held, (steps, triads))
    values = signal[np.maximum(last, 0), np.arange(triads)]
    return np.where((last >= 0)[..., None], values, 0.0)


@inertial("dead_axis", family="hardware")
def dead_axis(signal: Floats, severity: int, generator: np.random.Generator, _: WornOn) -> Floats:
    """Set a share of the axes to zero, at least one."""
    share = (0.07, 0.2, 0.4, 0.6, 0.8)[severity - 1]
    axes = signal.shape[1] * 3
    dead = generator.permutation(axes)[: max(round(share * axes), 1)]
    damaged = signal.copy().reshape(len(signal), axes)
    damaged[:, dead] = 0.0
    return damaged.reshape(signal.shape)


@inertial("rotation", family="placement")
def rotation(signal: Floats, severity: int, generator: np.random.Generator, body: WornOn) -> Floats:
    """Turn each unit about a random axis: it is strapped on differently (Banos et al.)."""
    degrees = (10, 20, 40, 70, 120)[severity - 1]
    triads = signal.shape[1]
    turns = [_turn(degrees, generator) for _ in range(body.per_unit(triads))]
    turns = turns * (triads // len(turns))  # the sensors of a unit turn together
    return np.stack([signal[:, k] @ turn.T for k, turn in enumerate(turns)], axis=1)


@inertial("quantisation", family="digital")
def quantisation(signal: Floats, severity: int, _: np.random.Generator, __: WornOn) -> Floats:
    """Round to few levels: a converter of few bits over a wide range (Woodman)."""
    step = (0.1, 0.2, 0.4, 0.8, 1.6)[severity - 1]
    return np.asarray(np.rint(signal / step) * step)


@inertial("clock_jitter", family="transmission")
def clock_jitter(
    signal: Floats, severity: int, generator: np.random.Generator, body: WornOn
) -> Floats:
    """Take each sample at a wrong time, as busy phones do (Stisen et al.); values in between."""
    spread = (0.5, 1.0, 2.0, 4.0, 8.0)[severity - 1]  # in steps, of 40 ms at 25 Hz
    steps, triads, _ = signal.shape
    units = body.per_unit(triads)
    times = np.arange(steps)[:, None] + spread * generator.standard_normal((steps, units))
    times = np.broadcast_to(np.clip(np.sort(times, axis=0), 0, steps - 1), (steps, triads))
    before = np.minimum(times.astype(np.int64), max(steps - 2, 0))
    after, share = np.minimum(before + 1, steps - 1), (times - before)[..., None]
    every = np.arange(triads)
    return np.asarray(signal[before, every] * (1 - share) + signal[after, every] * share)


@inertial("low_battery", family="hardware")
def low_battery(signal: Floats, severity: int, _: np.random.Generator, __: WornOn) -> Floats:
    """Halve the sampling rate once per severity; each sample is repeated (Krause et al.)."""
    kept = 1 << severity  # samples
    return signal[np.arange(len(signal)) // kept * kept]


@inertial("unit_swapped", family="placement")
def unit_swapped(
    signal: Floats, severity: int, generator: np.random.Generator, body: WornOn
) -> Floats:
    """Give the place of a unit to another, for a share of the time up to all of it.

    Of one kind of sensor, two triads change places. A whole unit shows what another one measures;
    without `others`, its signal of the reversed time, as nothing else is known.
    """
    share = (0.2, 0.4, 0.6, 0.8, 1.0)[severity - 1]
    steps, triads, _ = signal.shape
    first = steps - max(round(share * steps), 1)
    damaged = signal.copy()
    if not body.one_unit and triads > 1:
        one, other = generator.permutation(triads)[:2]
        damaged[first:, [one, other]] = signal[first:, [other, one]]
    elif body.others is not None and len(body.others):
        damaged[first:] = body.others[generator.integers(len(body.others))][first:]
    else:
        damaged[first:] = signal[::-1][first:]
    return damaged


def _signs(signal: Floats, generator: np.random.Generator) -> Floats:
    """Return -1 or 1 for each axis: (1, triads, 3)."""
    return generator.choice([-1.0, 1.0], (1, *signal.shape[1:]))


def _turn(degrees: float, generator: np.random.Generator) -> Floats:
    """Return the (3, 3) rotation about an axis drawn uniformly (Rodrigues' formula)."""
    x, y, z = (axis := generator.standard_normal(3)) / np.sqrt(np.sum(axis**2))
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    angle = np.deg2rad(degrees)
    return np.asarray(np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross)
