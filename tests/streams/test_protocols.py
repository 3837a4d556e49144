import itertools

import pytest

from dasp.core.errors import OptionError
from dasp.streams.protocols import PROTOCOLS, visits

ORDER = [
    "video gaussian_noise", "video shot_noise", "audio gaussian_noise", "video impulse_noise",
    "video defocus_blur", "audio traffic", "video glass_blur", "video motion_blur", "audio crowd",
    "video zoom_blur", "video snow", "video frost", "audio rain", "video fog", "video brightness",
    "audio thunder", "video contrast", "video elastic_transform", "audio wind", "video pixelate",
    "video jpeg_compression",
]  # fmt: skip


def test_the_papers_interleaved_order():
    found = [f"{v.domain.modality} {v.domain.corruption}" for v in visits("interleaved", 4)]
    assert found == ORDER
    assert all(v.domain.severity == 4 for v in visits("interleaved", 4))


@pytest.mark.parametrize(
    ("protocol", "count", "resets"),
    [
        ("per_domain/video", 15, 15),
        ("per_domain/audio", 6, 6),
        ("continual/video", 15, 1),
        ("continual/audio", 6, 1),
        ("interleaved", 21, 1),
        ("clean", 1, 1),
        ("per_domain/depth", 6, 6),
        ("continual/depth", 6, 1),
        ("interleaved/depth", 27, 1),
    ],
)
def test_where_a_method_starts_over(protocol, count, resets):
    found = visits(protocol, 5)
    assert len(found) == count
    assert sum(v.reset for v in found) == resets
    assert found[0].reset
    assert protocol in PROTOCOLS


def test_three_sensors_take_turns_and_keep_the_papers_order():
    found = visits("interleaved/depth", 5)
    assert len({v.name for v in found}) == 27
    two = [v for v in found if v.domain.modality != "depth"]
    assert [v.name for v in two] == [v.name for v in visits("interleaved", 5)]
    depth = [v.name for v in found if v.domain.modality == "depth"]
    assert depth == [v.name for v in visits("continual/depth", 5)]
    places = [i for i, v in enumerate(found) if v.domain.modality == "depth"]
    assert all(4 <= b - a <= 5 for a, b in itertools.pairwise(places))


def test_some_corruptions_only():
    assert [v.name for v in visits("interleaved", 5, ("rain", "fog"))] == [
        "audio/rain/5",
        "video/fog/5",
    ]
    with pytest.raises(OptionError, match="did you mean 'rain'"):
        visits("interleaved", 5, ("rian",))
    with pytest.raises(OptionError, match="severity"):
        visits("interleaved", 6)
