"""The parts of DeYO that the figures of whole runs do not show."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dasp
from dasp.core.errors import ContractError, InputError
from dasp.methods.deyo import deyo_loss, shuffle_patches
from dasp.methods.losses import entropy
from dasp.models import Toy


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**31))
def test_shuffling_moves_whole_pieces(height, width, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(2, 3, 4 * height, 4 * width, generator=generator)
    order = torch.rand(2, 16, generator=generator).argsort(dim=1)
    moved = shuffle_patches(values, order)
    new, old = 5, int(order[1, 5])  # the piece in row 1, column 1 of the second picture
    here = moved[1, :, height : 2 * height, width : 2 * width]
    row, column = divmod(old, 4)
    there = values[1, :, row * height : (row + 1) * height, column * width : (column + 1) * width]
    assert (new, torch.equal(here, there)) == (5, True)
    assert torch.equal(shuffle_patches(moved, order.argsort(dim=1)), values)


def test_a_size_that_pieces_do_not_divide_is_resized_and_back():
    values = torch.rand(2, 6, 12)
    same = torch.arange(16).expand(2, -1)
    assert shuffle_patches(values, same).shape == values.shape
    with pytest.raises(InputError, match="pieces of pictures"):
        shuffle_patches(torch.rand(2, 6), same)


def test_the_weights_are_constants():
    logits = torch.randn(3, 5, requires_grad=True)
    plpd = torch.tensor([0.3, 0.5, 0.9])
    deyo_loss(logits, plpd, 0.4).backward()
    value = entropy(logits.detach())
    weight = (0.4 * math.log(5) - value).exp() + plpd.exp()
    twin = logits.detach().requires_grad_()
    (entropy(twin) * weight).mean().backward()
    torch.testing.assert_close(logits.grad, twin.grad)


def test_nothing_kept_means_no_update(batches):
    for option in ({"margin": 1e-6}, {"plpd_threshold": 1.1}):
        assert not dasp.adapt(Toy(seed=1), "deyo", **option)(batches[0]).updated


def test_the_port_needs_the_layers():
    class Closed(Toy):
        layers = None

    with pytest.raises(ContractError, match=r"layers\(\)"):
        dasp.adapt(Closed(), "deyo", variant="port")
    tta = dasp.adapt(Toy(depth=12), "deyo", variant="port")
    assert {name.split(".")[3] for name in tta.memory.weights} == set("012345678")
