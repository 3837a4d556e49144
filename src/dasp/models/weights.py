"""Build models by name, and read and write their weights, strictly.

Published checkpoints have their own names on disk and are translated to ours.
"""

import inspect
import json
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from dasp.core.errors import OptionError, WeightsError, unknown_name
from dasp.core.files import atomic_path
from dasp.core.registry import Registry
from dasp.models.cav_mae import CavMae, CavMaeDepth
from dasp.models.toy import Toy

MODELS: Registry[type[nn.Module]] = Registry("model")
MODELS.register("cav_mae")(CavMae)
MODELS.register("cav_mae_depth")(CavMaeDepth)
MODELS.register("toy")(Toy)

VIT_WIDTHS = (192, 384, 768, 1024)
BASE = "base"  # metadata key: the packaged model to which the rest of the tensors is equal
PRETRAINED = Path(__file__).parent / "pretrained"  # made by `dasp train`
_LETTERS = {"a": "audio", "v": "video"}

# Published name → ours. `{m}` stands for the modality.
_RENAMES = [
    (r"patch_embed_([av])\.proj\.(.+)", r"patch_embed.{m}.\2"),
    (r"pos_embed_([av])", r"positions.{m}"),
    (r"modality_([av])", r"modality_vectors.{m}"),
    (r"blocks_([av])\.(.+)", r"blocks.{m}.\2"),
    (r"(blocks)_u\.(.+)", r"shared_blocks.\2"),
    (r"norm_([av])\.(.+)", r"own_norm.{m}.\2"),
    (r"(mlp_head)\.(.+)", r"head.\2"),
]
_BLOCK_NORM = re.compile(r"(.*\.)norm([12])_([av])\.(.+)")


def load_model(
    name: str, weights: str | Path | Mapping[str, Tensor] | None = None, **sizes: Any
) -> nn.Module:
    """Build a model and load its weights: `load_model("cav_mae", weights="vgg_65.5.pth")`.

    A packaged model needs only its name: "sounding_shapes_0". Sizes that are not given are read
    from the checkpoint: stored by `save_weights`, or inferred from the shapes of its tensors. The
    model is returned in evaluation mode.
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
                f"the number of heads of a checkpoint of width {stored['embed_dim']} is unknown: "
                "give num_heads=…."
            )
    return load_weights(build(**(stored | sizes)), state).eval()


def load_trained(path: str | Path) -> nn.Module:
    """Load the model that a file was saved from; a published checkpoint is a CAV-MAE."""
    names = {build.__name__: name for name in MODELS for build in [MODELS[name]]}
    return load_model(names.get(model_class(path), "cav_mae"), path)


def _sizes(build: type[nn.Module]) -> list[str]:
    """Return the names of a model's sizes, including those of its base classes."""
    parents = [parent for parent in build.__mro__ if parent.__module__.startswith("dasp.")]
    return [name for parent in parents for name in inspect.signature(parent).parameters]


def pretrained_names() -> list[str]:
    """Return the names of the packaged models."""
    return sorted(path.stem for path in PRETRAINED.glob("*.safetensors"))


def pretrained_path(name: str) -> Path:
    """Return the weights file of a packaged model.

    >>> pretrained_path("sounding_shapes_0").name
    'sounding_shapes_0.safetensors'
    """
    if name not in pretrained_names():
        raise OptionError(unknown_name("pretrained model", name, pretrained_names()))
    return PRETRAINED / f"{name}.safetensors"


def from_published(name: str) -> str:
    """Translate a key of a published CAV-MAE checkpoint to our name.

    >>> from_published("module.blocks_a.0.norm1_v.weight")
    'blocks.audio.0.own_norm1.video.weight'
    """
    name = name.removeprefix("module.")
    for pattern, ours in _RENAMES:
        match = re.fullmatch(pattern, name)
        if match:
            name = match.expand(ours.replace("{m}", _LETTERS.get(match[1], "")))
            break
    match = _BLOCK_NORM.fullmatch(name)
    if match:
        name = f"{match[1]}own_norm{match[2]}.{_LETTERS[match[3]]}.{match[4]}"
    return name


def read_weights(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a checkpoint under the names in the file, and the stored sizes.

    The file is a safetensors file, or a pickle of tensors (other objects are never executed). If
    it only has the tensors that differ from a packaged model, the others are read from there.
    """
    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"no weights at {path}: give the path of a .safetensors or .pth file.")
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise WeightsError(f"{path} is not a readable safetensors file: {error}.") from error
        if BASE in metadata:
            state = read_weights(pretrained_path(metadata[BASE]))[0] | state
        return state, json.loads(metadata.get("config", "{}"))
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise WeightsError(
            f"{path} is not a checkpoint of plain tensors ({error}): "
            "it is damaged or contains other objects, which are never executed."
        ) from error
    for wrapper in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not all(isinstance(v, Tensor) for v in content.values()):
        raise WeightsError(f"{path} is not a mapping from names to tensors.")
    return dict(content), {}


def load_weights(model: nn.Module, weights: str | Path | Mapping[str, Tensor]) -> nn.Module:
    """Load a checkpoint (a path, or its tensors) into `model`, strictly, and return the model.

    Keys may be published ones, with or without `module.`, or ours. An error lists all keys that
    are missing, unexpected or of another shape; the model is then not changed.
    """
    path = None if isinstance(weights, Mapping) else weights
    found = weights if isinstance(weights, Mapping) else read_weights(weights)[0]
    state = {from_published(name): value for name, value in found.items()}
    wanted = model.state_dict()
    problems = {
        "missing": [name for name in wanted if name not in state],
        "unexpected": [name for name in state if name not in wanted],
        "of another shape": [
            f"{name} {tuple(state[name].shape)} instead of {tuple(wanted[name].shape)}"
            for name in wanted
            if name in state and state[name].shape != wanted[name].shape
        ],
    }
    if any(problems.values()):
        lists = "; ".join(
            f"{len(names)} {kind}: {', '.join(names)}" for kind, names in problems.items() if names
        )
        raise WeightsError(f"{path or 'these weights'} do not fit {type(model).__name__}: {lists}.")
    model.load_state_dict(state)
    return model


def model_class(path: str | Path) -> str:
    """Return the class name written by `save_weights`, or "" if there is none."""
    if Path(path).suffix != ".safetensors" or not Path(path).is_file():
        return ""
    try:
        with safe_open(path, framework="pt") as file:
            return str((file.metadata() or {}).get("model", ""))
    except SafetensorError:
        return ""  # reading the weights will report the problem


def save_weights(model: nn.Module, path: str | Path, base: str | None = None) -> None:
    """Write the model's weights, and its sizes if it has a `config`, as one safetensors file.

    With `base`, the name of a packaged model, only the tensors that differ are written.
    """
    metadata = {"config": json.dumps(getattr(model, "config", {})), "model": type(model).__name__}
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    if base is not None:
        metadata[BASE] = base
        theirs = read_weights(pretrained_path(base))[0]
        state = {
            name: value
            for name, value in state.items()
            if name not in theirs or not torch.equal(value, theirs[name])
        }
    with atomic_path(path) as part:
        save_file(state, part, metadata=metadata)


def infer_cav_mae_config(state: Mapping[str, Tensor], mel_bins: int = 128) -> dict[str, Any]:
    """Infer the sizes of a CAV-MAE from its tensors.

    The number of heads cannot be inferred: it is only set for the widths of the ViT family, whose
    heads are 64 wide.
    """
    ours = {from_published(name): value for name, value in state.items()}
    try:
        kernel = ours["patch_embed.video.weight"]  # (D, 3, patch, patch)
        audio_tokens = ours["positions.audio"].shape[1]
        video_tokens = ours["positions.video"].shape[1]
        classes = ours["head.1.weight"].shape[0]
        hidden = ours["shared_blocks.0.mlp.fc1.weight"].shape[0]
    except KeyError as error:
        raise WeightsError(
            f"these are not the weights of a fine-tuned CAV-MAE: no {error}."
        ) from error
    dim, patch = kernel.shape[0], kernel.shape[-1]
    depth = len({name.split(".")[2] for name in ours if name.startswith("blocks.audio.")})
    fusion = len({name.split(".")[1] for name in ours if name.startswith("shared_blocks.")})
    heads = {"num_heads": dim // 64} if dim in VIT_WIDTHS else {}
    return heads | {
        "embed_dim": dim,
        "depth": depth,
        "fusion_depth": fusion,
        "mlp_ratio": hidden / dim,
        "audio_length": audio_tokens * patch * patch // mel_bins,
        "mel_bins": mel_bins,
        "image_size": round(video_tokens**0.5) * patch,
        "patch": patch,
        "num_classes": classes,
    }
