"""Terms that several losses share. All take logits (B, C); entropies are in nats."""

import torch
from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy of each prediction: (B, C) → (B,)."""
    log_p = logits.log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def entropy_of_mean(logits: Tensor) -> Tensor:
    """Return the entropy of the batch's mean prediction, H(p̄): (B, C) → ()."""
    mean = logits.softmax(dim=1).mean(dim=0)
    return -torch.xlogy(mean, mean).sum()


def read_balance(logits: Tensor) -> Tensor:
    """Return READ's balance term: entropy of a second softmax, of the *summed* probabilities."""
    return entropy(logits.softmax(dim=1).sum(dim=0, keepdim=True))[0]


def kl_divergence(from_logits: Tensor, to_logits: Tensor) -> Tensor:
    """Return KL(softmax(from) ‖ softmax(to)), batch mean; the gradient flows through both."""
    log_p, log_q = from_logits.log_softmax(dim=1), to_logits.log_softmax(dim=1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=1).mean()


def predicted_rows(logits: Tensor) -> Tensor:
    """Tell which rows of logits (B, C) are distributions: (B,) bool.

    −inf rules a class out and is allowed; NaN, +inf, and −inf for every class are not.
    """
    return ~logits.detach().log_softmax(dim=1).isnan().any(dim=1)


def with_spoilt_rows(logits: Tensor, *features: Tensor) -> Tensor | None:
    """Return logits with NaN where a sample's prediction or features are not finite, or None.

    For methods in which samples of a batch meet: they must stop at such a sample, which would spoil
    the others, and return these logits; the loop then predicts the others without it.
    """
    good = predicted_rows(logits)
    for rows in features:
        good = good & torch.isfinite(rows.detach()).flatten(1).all(dim=1)
    return None if good.all() else logits.detach().masked_fill(~good[:, None], torch.nan)
