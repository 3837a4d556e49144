"""Visits: the stops of a stream, and what is wrong with the sensors at each."""

from collections.abc import Sequence
from dataclasses import dataclass

from dasp.streams.domains import Domain

MISSING, CONSTANT = "missing", "constant"


@dataclass(frozen=True)
class Condition:
    """What is wrong with the sensors while a sample is taken; a sensor not named is as it was.

    >>> fog = Domain("video", "fog", 5)
    >>> Condition((fog, Domain("audio", "rain", 5))).name
    'video/fog/5+audio/rain/5'
    >>> Condition((fog,), missing=("audio",)).name
    'video/fog/5+audio/missing'
    """

    domains: tuple[Domain, ...] = ()
    """Damage, at most one domain a modality."""
    missing: tuple[str, ...] = ()
    """Modalities that send nothing: they are absent from the inputs."""
    constant: tuple[str, ...] = ()
    """Modalities that send zeros whatever happens."""

    @property
    def name(self) -> str:
        """Return the name used in results: "clean", or all that is wrong, joined by "+"."""
        words = [str(domain) for domain in self.domains]
        for silence, modalities in ((MISSING, self.missing), (CONSTANT, self.constant)):
            words += [f"{modality}/{silence}" for modality in modalities]
        return "+".join(words) or "clean"

    def domain(self, modality: str) -> Domain | None:
        """Return the domain that damages this modality."""
        return next((d for d in self.domains if d.modality == modality), None)


CLEAN = Condition()


@dataclass(frozen=True)
class Visit:
    """One stop of a stream: each sample of the data set comes once under each condition."""

    conditions: Sequence[Condition]
    """One; or several, whose samples lie side by side in a batch (all with the same inputs)."""
    reset: bool
    """Whether the method starts over before it."""
    order: str = "shuffled"
    """How samples follow each other, see `dasp.streams.orders`."""
    number: int = 0
    """How often the stream has been here before."""

    @property
    def name(self) -> str:
        """Return the name used in results: "video/fog/5", "clean", or "mixed"."""
        return self.conditions[0].name if len(self.conditions) == 1 else "mixed"

    @property
    def purpose(self) -> tuple[str, ...]:
        """Return what the order of samples is drawn for: another one each time."""
        return (self.name, str(self.number)) if self.number else (self.name,)

    def batches(self, samples: int, batch_size: int) -> int:
        """Return how many batches a data set of so many samples gives here."""
        return -(-len(self.conditions) * samples // batch_size)
