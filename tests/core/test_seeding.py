from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dasp.core.errors import OptionError
from dasp.core.seeding import batch_seed, numpy_generator

seeds = st.integers(0, 2**31 - 1)


def draw(*key):
    return numpy_generator(*key).integers(2**62)


@given(seeds, st.text(), st.text())
def test_the_same_purpose_draws_the_same(seed, domain, sample):
    assert draw(seed, domain, sample) == draw(seed, domain, sample)


def test_any_part_of_the_purpose_matters():
    keys = [(0, "a", "b"), (1, "a", "b"), (0, "ab", ""), (0, "a", "c"), (0, "b", "a")]
    assert len({draw(*key) for key in keys}) == len(keys)


@given(seeds, st.integers(0, 2**31))
def test_a_batch_seed_fits_the_generator_and_starts_at_the_index(seed, index):
    assert batch_seed(0, index) == index
    assert 0 <= batch_seed(seed, index) < 2**32


def test_streams_of_a_hundred_seeds_do_not_meet_within_ten_million_batches():
    starts = sorted(batch_seed(seed, 0) for seed in range(100))
    assert min(b - a for a, b in pairwise(starts)) > 10**7


@pytest.mark.parametrize("seed", [-1, 2**31, 1.5, "0"])
def test_a_bad_seed_is_refused(seed):
    with pytest.raises(OptionError, match="seed must be"):
        numpy_generator(seed, "a")


def test_a_purpose_that_is_no_text_is_refused():
    with pytest.raises(OptionError, match=r"given as texts, not 17: use str\(17\)"):
        numpy_generator(0, "video/fog/3", 17)
