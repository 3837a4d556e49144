"""The names of body-worn sensors, and the unit in which the size of an effect is given."""

SENSORS = {"accelerometer": 9.80665, "gyroscope": 1.0, "magnetometer": 1.0}
"""Kinds of sensor, and 1 g in m/s², 1 rad/s and the earth's magnetic field."""
BODY_UNITS = ("torso", "right_arm", "left_arm", "right_leg", "left_leg")
INERTIAL = (*SENSORS, *BODY_UNITS)
"""Modalities that are inertial signals."""


def kinds_of(modality: str, triads: int) -> tuple[str, ...]:
    """Return the kind of each triad (x, y, z) of a modality.

    >>> kinds_of("gyroscope", 2), kinds_of("torso", 3)
    (('gyroscope', 'gyroscope'), ('accelerometer', 'gyroscope', 'magnetometer'))
    """
    return (modality,) * triads if modality in SENSORS else tuple(SENSORS)
