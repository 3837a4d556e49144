"""Corruptions of depth maps: the size of each effect."""

import numpy as np
import pytest

from dasp.corruptions import corrupt_depth


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
    block = np.full((32, 32), 2100, np.uint16)
    block[8:24, 8:24] = 950
    got = corrupt_depth(block, "multipath", 3).astype(int)
    assert (got[5, 16] - got[12, 16]) < (int(block[5, 16]) - int(block[12, 16]))
    wall = np.full((32, 32), 2000, np.uint16)
    assert np.unique(corrupt_depth(wall, "multipath", 3)[8:-8, 8:-8]).tolist() == [2050]


def test_quantisation_leaves_few_levels():
    ramp = np.arange(500, 2548, dtype=np.uint16).reshape(32, 64)
    got = corrupt_depth(ramp, "quantisation", 5)
    assert set(got.ravel() % 160) == {0}
    assert np.abs(got.astype(int) - ramp).max() <= 80
