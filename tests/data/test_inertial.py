"""Daily and Sports Activities: the text layout, people as splits, and files that are wrong."""

import numpy as np
import pytest

from dasp.core.errors import DataError, OptionError
from dasp.core.sensors import BODY_UNITS, SENSORS
from dasp.data.inertial import (
    InertialSamples,
    find_segments,
    model_input,
    people_of,
    read_segment,
    triads_of,
    with_others,
)
from dasp.streams import Domain, DomainDamage


def write_tree(root, people=("p1", "p7", "p8")):
    """Write the first segment in the order of a stream, of every activity; the rest is missing."""
    first = next(s.number for s in _named(root, people))
    for activity in range(1, 20):
        for person in people:
            folder = root / f"a{activity:02d}" / person
            folder.mkdir(parents=True, exist_ok=True)
            seed = 100 * activity + int(person[1:])
            values = np.random.default_rng(seed).normal(size=(125, 45)).round(4)
            np.savetxt(folder / f"s{first:02d}.txt", values, fmt="%.4f", delimiter=",")
    return root


def _named(root, people):
    for activity in range(1, 20):
        for person in people:
            (root / f"a{activity:02d}" / person).mkdir(parents=True, exist_ok=True)
    return find_segments(root, people)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return write_tree(tmp_path_factory.mktemp("dsa"))


def test_no_person_is_in_two_splits():
    splits = [set(people_of(name)) for name in ("train", "validation", "test")]
    assert sorted(person for split in splits for person in split) == [f"p{n}" for n in range(1, 9)]
    assert people_of("p3+p1") == ("p3", "p1")
    with pytest.raises(OptionError, match="unknown split or person 'p9'"):
        people_of("p9")
    with pytest.raises(OptionError, match="twice"):
        people_of("p1+p1")


def test_any_first_part_is_of_all_activities_and_people(tree):
    segments = find_segments(tree, ("p7", "p8"))
    assert len(segments) == 19 * 2 * 60
    first = segments[:38]
    assert {(s.label, s.person) for s in first} == {(a, p) for a in range(19) for p in ("p7", "p8")}
    assert len({s.id for s in segments}) == len(segments)


def test_the_columns_are_units_sensors_and_axes(tree):
    segment = find_segments(tree, ("p7",))[0]
    table = np.loadtxt(segment.path, delimiter=",").astype(np.float32)
    values = read_segment(segment.path)
    for u, unit in enumerate(BODY_UNITS):
        np.testing.assert_array_equal(
            triads_of(values, unit).reshape(125, 9), table[:, 9 * u : 9 * u + 9]
        )
        assert np.array_equal(with_others(values, unit)[0], triads_of(values, unit))
    for k, sensor in enumerate(SENSORS):
        expected = [table[:, 9 * u + 3 * k : 9 * u + 3 * k + 3] for u in range(5)]
        np.testing.assert_array_equal(triads_of(values, sensor), np.stack(expected, axis=1))
    gravity = np.full((125, 5, 3), 9.80665, np.float32)
    assert model_input(gravity, "accelerometer").unique().tolist() == [1.0]
    with pytest.raises(OptionError, match="unknown sensor or unit"):
        triads_of(values, "nose")


@pytest.mark.parametrize(("modality", "channels"), [("gyroscope", 15), ("left_arm", 9)])
def test_only_the_damaged_sensor_is_damaged(tree, modality, channels):
    segments = find_segments(tree, ("p7",))[:2]
    clean = InertialSamples(segments, modality)
    assert clean[1].inputs[modality].shape == (channels, 125)
    assert (clean[1].label, clean[1].id) == (1, segments[1].id)
    for name in ("noise", "unit_swapped"):
        damage = DomainDamage(Domain(modality, name, 5))
        damaged = InertialSamples(segments, modality, damage)
        assert not damaged[1].inputs[modality].equal(clean[1].inputs[modality])
        other = InertialSamples(segments, "torso", damage)
        assert other[1].inputs["torso"].equal(InertialSamples(segments, "torso")[1].inputs["torso"])


def test_a_top_directory_called_data_is_found(tree, tmp_path):
    (tmp_path / "data").symlink_to(tree)
    assert find_segments(tmp_path, ("p7",))[0].path.is_file()
    with pytest.raises(DataError, match="dasp data fetch dsa"):
        find_segments(tmp_path / "data" / "a01", ("p7",))


def test_a_missing_person_is_named(tree):
    with pytest.raises(DataError, match=r"a01/p6 does not exist: person p6 is missing"):
        find_segments(tree, people_of("validation"))


ROW = ",".join(["0.5"] * 45)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([ROW] * 80, "line 80: the file ends here, not at 125"),
        ([ROW] * 79 + [ROW[:39]], "line 80: 10 numbers, not 45"),
        ([ROW] * 9 + [ROW[4:]] + [ROW] * 115, "line 10: 44 numbers, not 45"),
        ([ROW] * 3 + ["x" + ROW] + [ROW] * 121, "line 4: .*'x0.5'"),
        ([ROW] * 3 + ["nan" + ROW[3:]] + [ROW] * 121, "line 4: a value is not finite"),
        ([ROW] * 126, "line 126: the file ends here, not at 125"),
        ([], "line 0: the file ends here"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(tmp_path, lines, message):
    path = tmp_path / "s01.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(DataError, match=f"{path}, {message}"):
        read_segment(path)


def test_a_file_that_is_not_text_or_not_there_is_named(tmp_path):
    path = tmp_path / "s02.txt"
    with pytest.raises(DataError, match=f"cannot read {path}: No such file"):
        read_segment(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=f"cannot read {path}"):
        read_segment(path)
