import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dasp.core.seeding import numpy_generator
from dasp.streams.orders import ORDERS, sample_order


@given(
    order=st.sampled_from(ORDERS),
    labels=st.lists(st.integers(0, 9), min_size=1, max_size=200).map(np.array),
    size=st.integers(1, 300),
    seed=st.integers(0, 99),
)
def test_every_sample_comes_once_and_the_draws_decide(order, labels, size, seed):
    found = sample_order(order, labels, size, numpy_generator(seed, "order"))
    assert sorted(found) == list(range(len(labels)))
    again = sample_order(order, labels, size, numpy_generator(seed, "order"))
    assert np.array_equal(found, again)
    if order == "sorted":
        assert (np.diff(labels[found]) >= 0).all()


def classes_in_a_batch(order, size=64):
    labels = np.arange(1024) % 36
    found = labels[sample_order(order, labels, size, numpy_generator(0, "order"))]
    return np.mean([len(set(found[start : start + size])) for start in range(0, 1024, size)])


def test_correlated_orders_show_few_classes_at_a_time():
    shuffled, dirichlet, one_by_one = (classes_in_a_batch(order) for order in ORDERS)
    assert shuffled > 25
    assert 3 < dirichlet < 15
    assert one_by_one < 4


@pytest.mark.parametrize("order", ["dirichlet", "sorted"])
def test_other_draws_give_another_order(order):
    labels = np.arange(60) % 4
    first, second = (sample_order(order, labels, 10, numpy_generator(s, "o")) for s in (0, 1))
    assert not np.array_equal(first, second)
