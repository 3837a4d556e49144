import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dasp.models import int8
from dasp.models.int8 import Int8Linears, int8_linear, quantise, quantise_weight


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(st.integers(0, 99), st.integers(1, 6), st.integers(1, 9), st.integers(-20, 20))
def test_no_number_moves_by_more_than_half_a_step(seed, rows, width, power):
    values = drawn(rows, width, seed=seed) * 10.0**power
    rounded, scales = quantise(values)
    assert rounded.dtype == torch.int8
    assert (rounded.abs().amax(dim=1) == 127).all()
    assert ((rounded * scales - values).abs() <= scales * 0.5001).all()


def test_whole_numbers_are_multiplied_exactly():
    values = torch.randint(-126, 127, (5, 7), generator=torch.Generator().manual_seed(0)).float()
    weight = torch.randint(-126, 127, (3, 7), generator=torch.Generator().manual_seed(1)).float()
    values[:, 0] = weight[:, 1] = 127
    bias = torch.tensor([1.0, 2.0, 3.0])
    exact = F.linear(values, weight, bias)
    assert torch.equal(int8_linear(values, quantise_weight(weight), bias), exact)
    assert torch.equal(int8_linear(values, quantise_weight(weight), None), exact - bias)


def test_the_map_is_near_and_each_output_has_its_own_scale():
    x, weight, bias = drawn(4, 6, 64), drawn(32, 64, seed=1), drawn(32, seed=2)
    weight[0] *= 1e4  # would drown the others if they shared its scale
    exact = F.linear(x, weight, bias)
    found = int8_linear(x, quantise_weight(weight), bias)
    error = (found - exact).norm(dim=(0, 1)) / exact.norm(dim=(0, 1))
    assert found.shape == (4, 6, 32)
    assert error.max() < 0.02
    assert error.min() > 1e-5  # it is rounded


def test_a_token_depends_on_no_other_and_on_no_chunk(monkeypatch):
    x, weight, bias = drawn(10, 16), quantise_weight(drawn(8, 16, seed=1)), drawn(8, seed=2)
    x[3] *= 1e6
    whole = int8_linear(x, weight, bias)
    monkeypatch.setattr(int8, "CACHED_ROWS", 4)
    assert torch.equal(int8_linear(x, weight, bias), whole)
    for row in range(10):
        assert torch.equal(int8_linear(x[row : row + 1], weight, bias), whole[row : row + 1])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_stays_with_its_token(bad):
    x, weight, bias = drawn(3, 16), quantise_weight(drawn(8, 16, seed=1)), drawn(8, seed=2)
    good = int8_linear(x, weight, bias)
    x[1, 4] = bad
    found = int8_linear(x, weight, bias)
    assert not torch.isfinite(found[1]).any()
    assert torch.equal(found[[0, 2]], good[[0, 2]])


def test_zeros_give_the_bias():
    bias = drawn(8)
    assert torch.equal(
        int8_linear(torch.zeros(2, 4), quantise_weight(torch.zeros(8, 4)), bias), bias.expand(2, 8)
    )


@torch.no_grad()
def test_only_maps_by_float32_parameters_run_in_8_bits():
    layer, x = nn.Linear(16, 8), drawn(3, 16)
    exact, linears = layer(x), Int8Linears()
    with linears:
        rounded = layer(x)
        computed = F.linear(x, layer.weight * 1.0, layer.bias)
        double = F.linear(x.double(), layer.weight.double())
        by_name = F.linear(input=x, weight=layer.weight, bias=layer.bias)
    assert linears.count == 2
    assert torch.equal(rounded, by_name)
    assert not torch.equal(rounded, exact)
    assert torch.equal(computed, exact)
    assert double.dtype == torch.float64
    assert torch.equal(layer(x), exact)


@torch.no_grad()
def test_a_weight_that_has_changed_is_rounded_again():
    layer, x, linears = nn.Linear(16, 8, bias=False), drawn(3, 16), Int8Linears()
    with linears:
        first = layer(x)
        layer.weight.mul_(2.0)
        torch.testing.assert_close(layer(x), 2 * first)
        layer.weight.data = layer.weight.data * 2.0
        torch.testing.assert_close(layer(x), 4 * first)
