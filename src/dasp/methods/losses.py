"""The pieces that losses are made of. All take logits (B, C) and return nats."""

import torch
from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """Entropy of each prediction: (B, C) → (B,)."""
    log_p = logits.log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def entropy_of_mean(logits: Tensor) -> Tensor:
    """Entropy of the batch's mean prediction, H(p̄): (B, C) → ()."""
    mean = logits.softmax(dim=1).mean(dim=0)
    return -torch.xlogy(mean, mean).sum()


def read_balance(logits: Tensor) -> Tensor:
    """READ's balance term: entropy of a second softmax, taken of the *summed* probabilities."""
    return entropy(logits.softmax(dim=1).sum(dim=0, keepdim=True))[0]


def kl_divergence(from_logits: Tensor, to_logits: Tensor) -> Tensor:
    """KL(softmax(from) ‖ softmax(to)), mean over the batch; gradient flows through both."""
    log_p, log_q = from_logits.log_softmax(dim=1), to_logits.log_softmax(dim=1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=1).mean()
