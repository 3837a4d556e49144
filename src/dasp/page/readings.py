"""What a running adaptation shows of its inside: limits of the diagnosis, norms of its parts."""

from collections.abc import Mapping

import torch

from dasp.core.types import Diagnosis
from dasp.methods import Adaptation, Dasp


def limits(tta: Adaptation, diagnosis: Diagnosis) -> dict[str, float]:
    """Return above which score each modality would have been called biased; {} if unknown."""
    if not isinstance(tta.method, Dasp):
        return {}
    margin = 0.0 if by_profile(tta) else tta.method.delta
    return {
        name: score - diagnosis.differences[name] + margin
        for name, score in diagnosis.scores.items()
    }


def by_profile(tta: Adaptation) -> bool:
    """Tell whether the score is the distance from clean samples instead of redundancy."""
    if not isinstance(tta.method, Dasp):
        return False
    own = tta.method.diagnoser
    return own.rules.score == "profile" and bool(own.fitted)


@torch.no_grad()
def norms(tta: Adaptation) -> dict[str, float]:
    """Return ‖θ − θ₀‖ by part: "audio plastic", "audio stable", …; "shared" for all else."""
    squares: dict[str, float] = {}
    start: Mapping[str, torch.Tensor] = tta.source.tensors
    for path, weight in tta.memory.weights.items():
        words = path.split(".")
        part = " ".join(words[1:3]) if words[0] == "adapters" else "shared"
        change = weight.float() - start[f"weight/{path}"].float()
        squares[part] = squares.get(part, 0.0) + float(change.square().sum())
    return {part: square**0.5 for part, square in squares.items()}
