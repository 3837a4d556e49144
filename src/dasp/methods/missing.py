"""What becomes of a batch that lacks a modality: one policy, for every method.

The prediction is made from the modalities that are there, and so is the diagnosis.

- A method that treats modalities alike, however many there are, runs as ever on those present.
  What belongs to an absent one gets no gradient, so no optimiser moves it.
- A method that weighs modalities against each other learns nothing from such a batch: one for
  exactly two of them, one that trains how the fusion attends from one to the other, and one that
  says so itself (`Method.learns_from_part = False`). It predicts as the model does with its own
  weights as they are by now, without what the method put around them.
"""

import torch
from torch import Tensor

from dasp.core.contract import HasFusionQkv
from dasp.core.types import Prediction, Step, Tokens
from dasp.methods.base import Method


def learns_from(method: Method, batch: Tokens) -> bool:
    """Tell whether a method runs on a batch by itself, or is only predicted for."""
    if len(batch) == len(method.model.modalities):
        return True
    weighs = method.exactly_two_modalities or HasFusionQkv in method.needs
    return method.learns_from_part and not weighs


def step(method: Method, batch: Tokens) -> Step:
    """Let a method make its step, or predict from what is there and give no loss."""
    if learns_from(method, batch):
        return method.step(batch)
    return Step(predict(method, batch).logits)


def predict(method: Method, batch: Tokens) -> Prediction:
    """Predict with the present state; changes nothing."""
    if learns_from(method, batch):
        return method.predict(batch)
    with torch.no_grad():
        logits = method.fuse(adapted_tokens(method, batch)).logits
        return Prediction(method.group.gather(logits))


def adapted_tokens(method: Method, batch: Tokens) -> dict[str, Tensor]:
    """Return the tokens {name: (B, N, D)} that the fusion receives, of the modalities present."""
    if learns_from(method, batch):
        return method.adapted_tokens(batch)
    return Method.adapted_tokens(method, batch)
