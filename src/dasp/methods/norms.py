"""Norm layers of every kind: the parameters that they have, and the statistics of BatchNorms."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

KINDS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, _BatchNorm, _InstanceNorm)
NAMES = ("LayerNorm", "RMSNorm")  # how other libraries' own classes end


def norms_of(modules: Iterable[nn.Module]) -> list[nn.Parameter]:
    """Return the affine parameters of all norm layers within these modules."""
    inside = (part for module in modules for part in module.modules())
    norms = (part for part in inside if _is_norm(part))
    return [parameter for norm in norms for parameter in norm.parameters(recurse=False)]


def _is_norm(module: nn.Module) -> bool:
    return isinstance(module, KINDS) or type(module).__name__.endswith(NAMES)


def trained_batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """Return the BatchNorms of which a parameter is trained."""
    return [
        module
        for module in model.modules()
        if isinstance(module, _BatchNorm)
        and any(parameter.requires_grad for parameter in module.parameters(recurse=False))
    ]


@contextmanager
def batch_statistics(norms: Sequence[_BatchNorm], samples: int, follow: bool) -> Iterator[None]:
    """Let BatchNorms normalise by the statistics of a batch, as Tent does, in this block.

    One sample has no statistics of its own: it is normalised by the running ones. If `follow`, the
    running ones move towards those of the batch by the momentum of the layer.
    """
    used = norms if samples > 1 else ()
    before = [(norm.training, norm.track_running_stats) for norm in used]
    for norm in used:
        norm.training, norm.track_running_stats = True, follow and norm.track_running_stats
    try:
        yield
    finally:
        for norm, (training, tracks) in zip(used, before, strict=True):
            norm.training, norm.track_running_stats = training, tracks
