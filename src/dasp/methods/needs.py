"""Whether a method fits a model: everything that is lacking in one message, before it is built."""

from collections.abc import Callable
from typing import Any

from torch import nn

from dasp.core.contract import (
    HasAttentionMaps,
    HasFusionQkv,
    check_parts,
    missing_part,
    name_of,
)
from dasp.core.errors import ContractError, OptionError, unknown_name
from dasp.methods.attention import find_fusion_qkv
from dasp.methods.attention_maps import why_no_maps
from dasp.methods.base import METHODS, Method, hyperparameters
from dasp.methods.norms import norms_of

NORMS = "LayerNorm, BatchNorm, GroupNorm, InstanceNorm, RMSNorm"


def lacking(method: type[Method], model: nn.Module) -> list[str]:
    """Return what a method needs and a model of the contract does not have, a sentence for each."""
    check_parts(model)
    found = []
    if method.exactly_two_modalities and len(model.modalities) != 2:  # type: ignore[arg-type]
        found.append(f"it is defined for two modalities and the model has {model.modalities}")
    if method.trainable is Method.norms and not norms_of([model]):
        found.append(f"the model has no norm layer with weights to train ({NORMS})")
    for need in method.needs:
        said = missing_part(model, need)
        if said and need not in FOUND:
            found.append(said)
        elif said and (why := FOUND[need](model)):
            found.append(f"{said}; none were found either: {why}")
    return found


def _why_no_qkv(model: nn.Module) -> str | None:
    try:
        find_fusion_qkv(model)
    except ContractError as error:
        return str(error)
    return None


FOUND: dict[type, Callable[[nn.Module], str | None]] = {
    HasFusionQkv: _why_no_qkv,
    HasAttentionMaps: why_no_maps,
}
"""What is looked for in a model that does not name it, and why it cannot be found."""


def method_class(method: str | type[Method]) -> type[Method]:
    """Return a method by its registered name, or the class itself."""
    build = METHODS[method] if isinstance(method, str) else method
    if not (isinstance(build, type) and issubclass(build, Method)):
        raise OptionError(f"method must be a name or a subclass of Method, not {method!r}.")
    return build


def build_method(method: str | type[Method], model: nn.Module, seed: int, **hyper: Any) -> Method:
    """Build a method for a model; refuse unknown options, and say all that is lacking."""
    build = method_class(method)
    known = hyperparameters(build)
    for name in hyper.keys() - known.keys():
        if name == "learning_rate":
            raise OptionError(f"the learning rate is called lr: lr={hyper[name]!r}.")
        raise OptionError(unknown_name(f"option of {build.__name__}", name, known))
    missing = lacking(build, model)
    error: type[ContractError | OptionError] = ContractError if missing else OptionError
    if "stream_length" in known and hyper.get("stream_length") is None:
        missing.append(
            "the number of batches until the next reset is not given (such as stream_length=100)"
        )
    if missing and build.needs_source:
        missing.append("clean source samples: call tta.fit([inputs]) before the first batch")
    if missing:
        raise error(
            f"{build.__name__} cannot adapt {name_of(model)}: {'; '.join(missing)}. "
            "See docs/own_model.md."
        )
    return build(model, seed=seed, **hyper)
