"""TSA: its adapter, its loss and its prediction by hand."""

import pytest
import torch

import dasp
from dasp.core.errors import ContractError
from dasp.methods.losses import read_balance
from dasp.methods.tsa import RowAdapter, tsa_loss
from dasp.models import Toy


def test_rows_times_matrix_plus_identity():
    adapter = RowAdapter(3)
    x = torch.randn(2, 4, 3)
    assert torch.equal(adapter(x), x)
    adapter.matrix.data.normal_()
    torch.testing.assert_close(adapter(x), x @ (adapter.matrix + torch.eye(3)))


def test_the_mean_is_taken_before_the_mask():
    logits = torch.tensor([[9.0, 0.0], [0.2, 0.0]])
    labels = torch.nn.functional.cross_entropy(logits, torch.tensor([0, 0]))
    expected = 0.5 * labels * 0.5 - read_balance(logits)
    assert float(tsa_loss(logits, 0.5, 0.95)) == pytest.approx(float(expected))


def test_the_draw_depends_on_seed_and_place_in_the_stream(batches):
    tta, other = (dasp.adapt(Toy(seed=1), "tsa", lr=1e-2, seed=s) for s in (0, 1))
    for batch in batches:
        tta(batch)
        other(batch)
    assert not torch.equal(tta.method.router, other.method.router)


def test_prediction_sums_both_views(batches):
    tta = dasp.adapt(Toy(seed=1), "tsa", lr=1e-2)
    tta(batches[0])
    with torch.no_grad():
        tokens = tta.model.encode(batches[1])
        hat = {name: tta.adapters[name](value) for name, value in tokens.items()}
        one = tta.model.fuse({"audio": tokens["audio"], "video": hat["video"]}).logits
        two = tta.model.fuse({"audio": hat["audio"], "video": tokens["video"]}).logits
    torch.testing.assert_close(tta(batches[1]).logits, one + two)


@pytest.mark.parametrize(
    "name", [n for n in dasp.METHODS if dasp.METHODS[n].exactly_two_modalities]
)
def test_methods_for_two_modalities_refuse_three(name):
    with pytest.raises(ContractError, match="two modalities"):
        dasp.adapt(Toy(modalities=("audio", "video", "depth"), depth=1), name)
