"""Body-worn sensors in the layout of UCI's Daily and Sports Activities: `aAA/pP/sSS.txt`.

Barshan and Yüksek 2014, Altun, Barshan and Tunçel 2010: 19 activities of 8 people, 60 segments of
5 s at 25 Hz each. A file has 125 rows of 45 numbers: for each of five units (torso, right arm, left
arm, right leg, left leg) the x, y and z of its accelerometer (m/s²), gyroscope (rad/s) and
magnetometer (earth's field). The segments of one person and activity are cuts of one recording, so
that data are split by people, never at random.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from dasp.core.errors import DataError, OptionError, cause, unknown_name
from dasp.core.seeding import numpy_generator
from dasp.core.sensors import BODY_UNITS, INERTIAL, SENSORS, kinds_of
from dasp.data.loading import Damage, Sample

ACTIVITIES = (
    "sitting", "standing", "lying on back", "lying on right side", "ascending stairs",
    "descending stairs", "standing in elevator", "moving in elevator", "walking in parking lot",
    "walking on flat treadmill", "walking on inclined treadmill", "running on treadmill",
    "stepper", "cross trainer", "cycling horizontally", "cycling vertically", "rowing", "jumping",
    "basketball",
)  # fmt: skip
PEOPLE = tuple(f"p{number}" for number in range(1, 9))
SPLITS = {"train": PEOPLE[:5], "validation": PEOPLE[5:6], "test": PEOPLE[6:]}
SEGMENTS, STEPS, COLUMNS = 60, 125, 45

Values = NDArray[np.float32]  # (steps, units, sensors, 3)


@dataclass(frozen=True)
class Segment:
    """Five seconds of one person's activity."""

    path: Path
    label: int
    person: str
    number: int

    @property
    def id(self) -> str:
        """Return the name that seeds its corruption, such as "p7/a03/s12"."""
        return f"{self.person}/a{self.label + 1:02d}/s{self.number:02d}"


def people_of(split: str) -> tuple[str, ...]:
    """Return the people of a split: train, validation, test, or names such as "p3" or "p7+p8".

    >>> people_of("test"), people_of("p1+p3")
    (('p7', 'p8'), ('p1', 'p3'))
    """
    if split in SPLITS:
        return SPLITS[split]
    people = tuple(split.split("+"))
    for person in people:
        if person not in PEOPLE:
            raise OptionError(unknown_name("split or person", person, [*SPLITS, *PEOPLE]))
    if len(set(people)) < len(people):
        raise OptionError(f"the split {split} names a person twice.")
    return people


def find_segments(root: str | Path, people: Sequence[str]) -> list[Segment]:
    """Return the segments of some people; any first n of them are of all activities and people.

    `root` has the directories a01 to a19, or is the archive's own top with `data/` in it.
    """
    base = Path(root)
    base = base / "data" if (base / "data").is_dir() else base
    if not (base / "a01").is_dir():
        raise DataError(
            f"{base / 'a01'} is not a directory: give the root of Daily and Sports Activities, "
            "with a01 to a19 in it; `dasp data fetch dsa` says where to get it."
        )
    order = numpy_generator(0, "dsa segments").permutation(SEGMENTS) + 1
    found = [
        Segment(base / f"a{label + 1:02d}" / person / f"s{number:02d}.txt", label, person, number)
        for number in order.tolist()
        for label in range(len(ACTIVITIES))
        for person in people
    ]
    for folder in sorted({segment.path.parent for segment in found}):
        if not folder.is_dir():
            raise DataError(
                f"{folder} does not exist: person {folder.name} is missing from activity "
                f"{folder.parent.name}; unpack the archive again, or choose others by --split."
            )
    return found


@lru_cache(maxsize=4096)
def read_segment(path: Path) -> Values:
    """Read a file as (125, 5, 3, 3) float32; an error names the line that is wrong."""
    remedy = "unpack the archive again."
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {cause(error)}; {remedy}") from error
    values = np.empty((STEPS, COLUMNS), np.float32)
    for number, line in enumerate(lines[:STEPS], start=1):
        words = line.split(",")
        if len(words) != COLUMNS:
            raise DataError(f"{path}, line {number}: {len(words)} numbers, not {COLUMNS}; {remedy}")
        try:
            values[number - 1] = words
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {cause(error)}; {remedy}") from error
        if not np.isfinite(values[number - 1]).all():
            raise DataError(f"{path}, line {number}: a value is not finite; {remedy}")
    if len(lines) != STEPS:
        raise DataError(f"{path}, line {len(lines)}: the file ends here, not at {STEPS}; {remedy}")
    values.flags.writeable = False
    return values.reshape(STEPS, len(BODY_UNITS), len(SENSORS), 3)


def triads_of(values: Values, modality: str) -> Values:
    """Return (125, triads, 3) of a kind of sensor (five triads) or of a unit (three)."""
    if modality in SENSORS:
        return values[:, :, list(SENSORS).index(modality)]
    if modality in BODY_UNITS:
        return values[:, BODY_UNITS.index(modality)]
    raise OptionError(unknown_name("sensor or unit", modality, INERTIAL))


def with_others(values: Values, unit: str) -> Values:
    """Return (5, 125, 3, 3): what a unit measures, and behind it what the others do."""
    order = sorted(range(len(BODY_UNITS)), key=lambda place: BODY_UNITS[place] != unit)
    return np.stack([values[:, place] for place in order])


def model_input(triads: Values, modality: str) -> torch.Tensor:
    """Return a model's input (channels, 125): 1 g, 1 rad/s and the earth's field are 1."""
    kinds = kinds_of(modality, triads.shape[1])
    unit = np.array([SENSORS[kind] for kind in kinds], np.float32)[:, None]
    return torch.from_numpy(np.ascontiguousarray((triads / unit).reshape(len(triads), -1).T))


class InertialSamples:
    """One modality of some segments, corrupted by `damage` if it is of that modality."""

    def __init__(
        self, segments: Sequence[Segment], modality: str, damage: Damage | None = None
    ) -> None:
        self.segments, self.modality, self.damage = segments, modality, damage

    def __len__(self) -> int:
        return len(self.segments)

    def __getitem__(self, index: int) -> Sample:
        segment = self.segments[index]
        values, name = read_segment(segment.path), self.modality
        triads = triads_of(values, name)
        if self.damage is not None and self.damage.modality == name:
            whole = triads if name in SENSORS else with_others(values, name)
            triads = self.damage(whole, segment.id)
        return Sample({name: model_input(triads, name)}, segment.label, segment.id)
