"""Models by name."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dasp.core.errors import OptionError, unknown_name
from dasp.core.registry import Registry
from dasp.models.cav_mae import CavMae
from dasp.models.cav_mae_depth import CavMaeDepth
from dasp.models.pretrained import pretrained_names, pretrained_path
from dasp.models.toy import Toy
from dasp.models.weights import infer_cav_mae_config, load_weights, model_class, read_weights

MODELS: Registry[type[nn.Module]] = Registry("model")
MODELS.register("cav_mae")(CavMae)
MODELS.register("cav_mae_depth")(CavMaeDepth)
MODELS.register("toy")(Toy)


def load_model(
    name: str, weights: str | Path | Mapping[str, Tensor] | None = None, **sizes: Any
) -> nn.Module:
    """Build a model and load its weights: `load_model("cav_mae", weights="vgg_65.5.pth")`.

    The name alone of a trained model that comes with the package does, too: "sounding_shapes_0".

    Sizes not given are read from the checkpoint: from the sizes stored by `save_weights`, or
    from the shapes of its tensors. The model comes back in evaluation mode.
    """
    if name in pretrained_names() and weights is None and not sizes:
        return load_trained(pretrained_path(name))
    if name not in MODELS:
        raise OptionError(unknown_name("model", name, [*MODELS, *pretrained_names()]))
    build = MODELS[name]
    known = _sizes(build)
    for size in sizes:
        if size not in known:
            raise OptionError(unknown_name(f"size of {name}", size, known))
    if weights is None:
        return build(**sizes).eval()
    state, stored = (weights, {}) if isinstance(weights, Mapping) else read_weights(weights)
    if name == "cav_mae" and not stored:
        stored = infer_cav_mae_config(state, sizes.get("mel_bins", 128))
        if "num_heads" not in stored | sizes:
            raise OptionError(
                f"a checkpoint of width {stored['embed_dim']} does not tell its number of heads: "
                "say num_heads=…."
            )
    return load_weights(build(**(stored | sizes)), state).eval()


def load_trained(path: str | Path) -> nn.Module:
    """Load the model that a file was saved from; a published checkpoint is a CAV-MAE."""
    names = {build.__name__: name for name in MODELS for build in [MODELS[name]]}
    return load_model(names.get(model_class(path), "cav_mae"), path)


def _sizes(build: type[nn.Module]) -> list[str]:
    """Name the sizes of a model, those of the model it extends included."""
    parents = [parent for parent in build.__mro__ if parent.__module__.startswith("dasp.")]
    return [name for parent in parents for name in inspect.signature(parent).parameters]
