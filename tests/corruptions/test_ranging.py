import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dasp.core.errors import InputError, OptionError
from dasp.core.seeding import numpy_generator
from dasp.corruptions import corrupt_depth, names
from dasp.corruptions.base import registry

DEPTHS = ["speckle", "dropout", "fog", "multipath", "quantisation", "dead_rows"]
CHECKSUMS = {
    "speckle": "69ea814f1ca9a657",
    "dropout": "608b72aa6e6c91b8",
    "fog": "b6ba418b5de979b7",
    "multipath": "20d3d3a88bc95da7",
    "quantisation": "bfcc8d2e7e371ffa",
    "dead_rows": "68a1bdccfb100d12",
}


def scene(side=32):
    """A wall, a slanted block before it, and a lost pixel."""
    rows, columns = np.mgrid[:side, :side]
    depth = (2000 + 7 * columns).astype(np.uint16)
    inside = slice(side // 4, 3 * side // 4)
    depth[inside, inside] = (900 + 6 * rows)[inside, inside]
    depth[1, 1] = 0
    return depth


def test_names_and_families():
    assert names("depth") == DEPTHS
    assert {registry("depth")[name].family for name in DEPTHS} == {"noise", "weather", "digital"}


@pytest.mark.same_bytes
@pytest.mark.parametrize("name", DEPTHS)
def test_checksums(name):
    """Whoever has the same digits has the same maps."""
    maps = [corrupt_depth(scene(), name, k, sample_id="map").astype("<u2") for k in range(1, 6)]
    assert hashlib.sha256(np.stack(maps).tobytes()).hexdigest()[:16] == CHECKSUMS[name]


@pytest.mark.parametrize("name", DEPTHS)
def test_severity_zero_is_a_copy_and_the_input_is_left_alone(name):
    depth = scene()
    depth.setflags(write=False)
    before = depth.copy()
    same = corrupt_depth(depth, name, 0)
    assert np.array_equal(same, depth)
    assert not np.shares_memory(same, depth)
    assert not np.array_equal(corrupt_depth(depth, name, 5), before)
    assert np.array_equal(depth, before)


@pytest.mark.parametrize("name", DEPTHS)
def test_the_same_seed_and_sample_give_the_same_map_in_any_order(name):
    ids = ["a", "b", "c"]
    forward = {key: corrupt_depth(scene(), name, 3, 7, key).tobytes() for key in ids}
    backward = {key: corrupt_depth(scene(), name, 3, 7, key).tobytes() for key in ids[::-1]}
    assert forward == backward
    drawn = name not in ("multipath", "quantisation")
    assert len(set(forward.values())) == (3 if drawn else 1)
    assert (corrupt_depth(scene(), name, 3, 8, "a").tobytes() != forward["a"]) == drawn


@pytest.mark.parametrize("name", DEPTHS)
def test_each_severity_is_worse_than_the_last(name):
    clean = scene(64).astype(float)
    errors = [
        np.mean([np.abs(corrupt_depth(scene(64), name, k, s) - clean).mean() for s in range(4)])
        for k in range(6)
    ]
    assert errors[0] == 0
    assert np.all(np.diff(errors) > 0)


@settings(deadline=None)
@given(
    name=st.sampled_from(DEPTHS),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    severity=st.integers(1, 5),
    highest=st.sampled_from([1, 300, 4000, 65535]),
    seed=st.integers(0, 2**31 - 1),
)
def test_any_map_stays_a_map_and_what_was_lost_stays_lost(name, shape, severity, highest, seed):
    depth = numpy_generator(seed, "any").integers(0, highest, shape, np.uint16, endpoint=True)
    got = corrupt_depth(depth, name, severity, seed, "x")
    assert (got.shape, got.dtype) == (depth.shape, np.uint16)
    assert np.all(got[depth == 0] == 0)
    assert np.array_equal(got, corrupt_depth(depth, name, severity, seed, "x"))


def test_speckle_has_its_share():
    wall = np.full((200, 200), 2000, np.uint16)
    for severity, sigma in enumerate((0.01, 0.02, 0.035, 0.055, 0.08), 1):
        assert corrupt_depth(wall, "speckle", severity).std() / 2000 == pytest.approx(
            sigma, rel=0.03
        )


def test_dropout_and_dead_rows_lose_their_shares_and_leave_the_rest():
    wall = np.full((200, 200), 2000, np.uint16)
    for severity, share in enumerate((0.1, 0.2, 0.35, 0.5, 0.7), 1):
        got = corrupt_depth(wall, "dropout", severity)
        assert (got == 0).mean() == pytest.approx(share, abs=0.01)
        assert set(np.unique(got)) == {0, 2000}
    for severity, share in enumerate((0.1, 0.2, 0.3, 0.45, 0.6), 1):
        rows = (corrupt_depth(wall, "dead_rows", severity) == 0).mean(axis=1)
        assert set(rows) == {0.0, 1.0}
        assert rows.mean() == pytest.approx(share)


def test_fog_takes_what_is_far_first_and_shows_nothing_farther():
    for severity, density in enumerate((0.1, 0.2, 0.35, 0.5, 0.7), 1):
        kept = []
        for distance in (800, 2400):
            got = corrupt_depth(np.full((200, 200), distance, np.uint16), "fog", severity)
            kept.append((got == distance).mean())
            assert kept[-1] == pytest.approx(np.exp(-2 * density * distance / 1000), abs=0.015)
            assert got.max() == distance
            assert got[got > 0].min() >= 250
        assert kept[0] > kept[1]


def test_multipath_flattens_edges_and_reads_too_far():
    block = scene()
    got = corrupt_depth(block, "multipath", 3).astype(int)
    assert (got[5, 16] - got[12, 16]) < (int(block[5, 16]) - int(block[12, 16]))
    wall = np.full((32, 32), 2000, np.uint16)
    assert np.unique(corrupt_depth(wall, "multipath", 3)[8:-8, 8:-8]).tolist() == [2050]


def test_quantisation_leaves_few_levels():
    ramp = np.arange(500, 2548, dtype=np.uint16).reshape(32, 64)
    got = corrupt_depth(ramp, "quantisation", 5)
    assert set(got.ravel() % 160) == {0}
    assert np.abs(got.astype(int) - ramp).max() <= 80


def test_other_arrays_and_severities_are_refused():
    for wrong in (np.zeros((4, 4)), np.zeros((4, 4, 1), np.uint16), np.zeros((0, 4), np.uint16)):
        with pytest.raises(InputError, match="depth map"):
            corrupt_depth(wrong, "fog", 1)
    for severity in (-1, 6, True, 2.5):
        with pytest.raises(OptionError, match="severity"):
            corrupt_depth(scene(), "fog", severity)
    with pytest.raises(OptionError, match="did you mean 'speckle'"):
        corrupt_depth(scene(), "speckel", 1)
