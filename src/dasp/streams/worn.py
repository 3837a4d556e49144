"""Which sensor of a body is damaged when, and how: the streams of inertial sensors.

The list of corruptions is fixed, as those of the papers are: registering one does not change it.
"""

from itertools import product

from dasp.core.sensors import BODY_UNITS, INERTIAL, SENSORS

GROUPS = {"sensors": tuple(SENSORS), "units": BODY_UNITS}
"""Ways to divide what is worn on a body into modalities: by kind of sensor, by body unit."""
CORRUPTIONS = (
    "noise", "bias", "drift", "gain", "clipping", "dropout", "dead_axis", "rotation",
    "quantisation", "clock_jitter", "low_battery", "unit_swapped",
)  # fmt: skip
OF_ONE = ("per_domain", "continual", "missing", "constant")
OF_ALL = ("interleaved", "pairs", "mixed", "dirichlet", "sorted", "stretches", "once", "once_mixed")
PROTOCOLS = (
    *(f"{kind}/{modality}" for kind, modality in product(OF_ONE, INERTIAL)),
    *(f"{kind}/{group}" for kind, group in product(OF_ALL, GROUPS)),
)

Step = tuple[str, str]  # modality, corruption


def steps(kind: str, target: str) -> list[tuple[Step, ...]]:
    """Return what is damaged in each domain of a protocol that visits several sensors, in order.

    >>> steps("pairs", "sensors")[0]
    (('accelerometer', 'noise'), ('gyroscope', 'bias'))
    """
    group = next(names for key, names in GROUPS.items() if target == key or target in names)
    count = len(group)
    if kind == "pairs":
        return [
            ((group[place % count], name), (group[(place + 1) % count], following))
            for place, (name, following) in enumerate(
                zip(CORRUPTIONS, (*CORRUPTIONS[1:], CORRUPTIONS[0]), strict=True)
            )
        ]
    # Every corruption of every sensor; from one domain to the next both change.
    return [
        ((group[(place + turn) % count], name),)
        for turn in range(count)
        for place, name in enumerate(CORRUPTIONS)
    ]
