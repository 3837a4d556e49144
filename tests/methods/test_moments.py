from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dasp.methods.moments import moments, packed, redundancy_of_moments, unpacked
from dasp.methods.redundancy import redundancy

SCORES = [(s, f) for s in ("cosine", "correlation") for f in ("joint", "own")]
NAMES = ("audio", "video")


def embeddings(rows, width, offset, seed, constant):
    """Two modalities; the first `constant` dimensions do not vary, or hardly."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(width, width, generator=generator)
    drawn = {name: torch.randn(rows, width, generator=generator) @ mix + offset for name in NAMES}
    for value in drawn.values():
        value[:, :constant] = offset + 1e-6 * value[:, :constant]
    return drawn


@given(
    rows=st.integers(1, 40),
    width=st.integers(1, 12),
    offset=st.sampled_from([0.0, 1.0, -30.0]),
    constant=st.integers(0, 3),
    cuts=st.lists(st.integers(0, 40), max_size=3),
    seed=st.integers(0, 1000),
    form=st.sampled_from(SCORES),
)
def test_moments_of_parts_add_up_to_the_score_of_the_whole(
    rows, width, offset, constant, cuts, seed, form
):
    whole = embeddings(rows, width, offset, seed, constant)
    expected = redundancy({name: value.double() for name, value in whole.items()}, *form)
    ends = [0, *sorted(min(cut, rows) for cut in cuts), rows]
    found = redundancy_of_moments(
        {
            name: sum(moments(value[a:b]) for a, b in pairwise(ends))
            for name, value in whole.items()
        },
        *form,
    )
    for name in NAMES:
        assert float(found[name]) == pytest.approx(float(expected[name]), abs=1e-6)


@given(st.integers(1, 20), st.integers(0, 100))
def test_packing_loses_nothing(width, seed):
    rows = torch.randn(5, width, generator=torch.Generator().manual_seed(seed))
    whole = moments(rows)
    assert len(packed(whole)) == (width + 1) * (width + 2) // 2
    assert torch.equal(unpacked(packed(whole)), whole)


def test_moments_tell_the_count_the_sums_and_the_products():
    rows = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    found = moments(rows)
    assert found[0, 0] == 7
    torch.testing.assert_close(found[0, 1:], rows.double().sum(dim=0))
    torch.testing.assert_close(found[1:, 1:], rows.double().T @ rows.double())


def test_unpacking_is_exact_for_wide_embeddings():
    whole = torch.rand(769, 769, generator=torch.Generator().manual_seed(0)).double()
    assert torch.equal(unpacked(packed(whole + whole.T)), whole + whole.T)
