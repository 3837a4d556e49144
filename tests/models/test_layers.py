import pytest
import torch

from dasp.models.layers import Attention, sincos_positions


def test_shown_and_hidden_attention_agree():
    torch.manual_seed(0)
    layer, x = Attention(12, 3), torch.randn(2, 5, 12)
    out, weights = layer.with_weights(x)
    torch.testing.assert_close(layer(x), out)
    assert weights.shape == (2, 3, 5, 5)


def test_positions_tell_rows_from_columns():
    grid = sincos_positions(2, 3, 8).view(2, 3, 8)
    assert torch.equal(grid[0, :, :4], grid[1, :, :4])  # the first half sees the column
    assert torch.equal(grid[:, 0, 4:], grid[:, 2, 4:])  # the second half sees the row
    assert len({tuple(row.tolist()) for row in grid.flatten(0, 1)}) == 6


def test_positions_need_a_width_of_four():
    with pytest.raises(ValueError, match="divisible by 4"):
        sincos_positions(2, 2, 6)
