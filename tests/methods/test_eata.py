import math

import torch

import dasp
from dasp.methods.eata import eata_keep, eata_loss
from dasp.models import Toy

SURE = [[5.0, 0.0, 0.0], [0.0, 5.0, 0.0], [1.0, 1.0, 1.0]]
NONE = torch.full((3,), torch.nan)


def test_sure_samples_are_kept_unless_they_are_like_the_average_once_there_is_one():
    assert eata_keep(torch.tensor(SURE), NONE, 0.4, 0.05).tolist() == [True, True, False]
    average = torch.tensor([1.0, 0.0, 0.0])
    assert eata_keep(torch.tensor(SURE), average, 0.4, 0.05).tolist() == [False, True, False]


def test_the_weight_is_a_constant():
    logits = torch.tensor(SURE[:2], requires_grad=True)
    p = logits.softmax(dim=1)
    value = -(p * p.log()).sum(dim=1)
    weight = torch.exp(0.4 * math.log(3) - value).detach()
    expected = (weight * value).mean()
    (theirs,) = torch.autograd.grad(expected, logits)
    (ours,) = torch.autograd.grad(eata_loss(logits, 0.4), logits)
    torch.testing.assert_close(ours, theirs)


class Says(Toy):
    """A model whose logits are what the test says, plus something to train."""

    said = None

    def fuse(self, tokens):
        fused = super().fuse(tokens)
        return dasp.Fused(fused.embedding, torch.tensor(self.said) + 0 * fused.logits)


def inputs(size):
    return {name: torch.zeros(size, 4, 12) for name in ("audio", "video")}


def test_the_average_follows_the_samples_that_pass_both_filters():
    says = Says(num_classes=3)
    tta = dasp.adapt(says, "eata")
    average = tta.method.average
    says.said = SURE
    assert tta(inputs(3)).updated
    first = torch.tensor(SURE[:2]).softmax(dim=1).mean(dim=0)
    torch.testing.assert_close(average, first)
    says.said = [[5.0, 0.0, 0.0], [0.0, 0.0, 9.0]]  # only the second is unlike the average
    assert tta(inputs(2)).updated
    second = torch.tensor(says.said[1]).softmax(dim=0)
    torch.testing.assert_close(average, 0.9 * first + 0.1 * second)
    says.said = [[5.0, 0.0, 0.0]]
    assert not tta(inputs(1)).updated
    torch.testing.assert_close(average, 0.9 * first + 0.1 * second)
    tta.reset()
    says.said = [[0.0, 0.0, 0.0]]  # nobody is sure
    assert not tta(inputs(1)).updated
    assert tta.method.average.isnan().all()


def test_fisher_penalty_holds_the_weights_back(batches, tmp_path):
    options = {"margin": 1.0, "similarity": 1.1, "lr": 1e-3}
    free = dasp.adapt(Toy(seed=1), "eata", **options)
    held = dasp.adapt(Toy(seed=1), "eata", **options, alpha=1e6)
    held.fit(batches)
    assert held.method.fisher.shape == (free.trainable.count,)
    assert (held.method.fisher >= 0).all()
    assert held.method.fisher.any()
    start = free.method._flat().detach().clone()
    for batch in batches * 5:
        free(batch)
        held(batch)
    moved = [(tta.method._flat().detach() - start).square() for tta in (free, held)]
    drift = [float((held.method.fisher * change).sum()) for change in moved]
    assert drift[1] < 0.5 * drift[0]


def test_fisher_by_hand(batches):
    tta = dasp.adapt(Toy(seed=1), "eata")
    tta.fit(batches[:2])
    squares = []
    for batch in batches[:2]:
        logits = tta.model(batch)
        loss = torch.nn.functional.cross_entropy(logits, logits.argmax(dim=1))
        norms = tta.method.norms()
        parts = torch.autograd.grad(loss, norms, allow_unused=True, materialize_grads=True)
        squares.append(torch.cat([part.flatten().square() for part in parts]))
    torch.testing.assert_close(tta.method.fisher, (squares[0] + squares[1]) / 2)
