"""Build models by name, and read and write their weights, strictly.

Published checkpoints have their own names on disk and are translated to ours.
"""

import inspect
import json
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
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
from dasp.models.clips import CavMaeClips
from dasp.models.inertial import InertialNet
from dasp.models.toy import Toy

MODELS: Registry[type[nn.Module]] = Registry("model")
for _name, _model in (
    ("cav_mae", CavMae), ("cav_mae_depth", CavMaeDepth), ("cav_mae_clips", CavMaeClips),
    ("inertial", InertialNet), ("toy", Toy),
):  # fmt: skip
    MODELS.register(_name)(_model)

VIT_WIDTHS = (192, 384, 768, 1024)
BASE = "base"  # metadata key: the packaged model to which the rest of the tensors is equal
PRETRAINED = Path(__file__).parent / "pretrained"  # made by `dasp train`

_RENAMES = [  # from published names to ours; @ is the letter, then the name, of a modality
    (r"^module\.", ""),
    (r"^patch_embed_@\.proj\.", "patch_embed.@."),
    (r"^pos_embed_@$", "positions.@"),
    (r"^modality_@$", "modality_vectors.@"),
    (r"^blocks_@\.", "blocks.@."),
    (r"^blocks_u\.", "shared_blocks."),
    (r"\.norm([12])_@\.", r".own_norm\1.@."),
    (r"^norm_@\.", "own_norm.@."),
    (r"^mlp_head\.", "head."),
]


@dataclass(frozen=True)
class WeightsFile:
    """The content of a weights file."""

    state: Mapping[str, Tensor]  # under the names in the file
    config: Mapping[str, Any] = field(default_factory=dict)  # sizes, if `save_weights` wrote it
    model: str = "CavMae"  # name of its class; a published checkpoint is a CAV-MAE


def load_model(
    name: str, weights: str | Path | Mapping[str, Tensor] | None = None, **sizes: Any
) -> nn.Module:
    """Build a model and load its weights: `load_model("cav_mae", weights="vgg_65.5.pth")`.

    A packaged model needs only its name: "sounding_shapes_0". Sizes that are not given are those
    stored in the file, or follow from the shapes of its tensors.
    """
    if name in pretrained_names() and weights is None and not sizes:
        return load_trained(pretrained_path(name))
    if name not in MODELS:
        raise OptionError(unknown_name("model", name, [*MODELS, *pretrained_names()]))
    parents = [inspect.signature(parent).parameters for parent in MODELS[name].__mro__]
    known = {p.name for each in parents for p in each.values() if p.kind is p.KEYWORD_ONLY}
    for size in sizes:
        if size not in known:
            raise OptionError(unknown_name(f"size of {name}", size, known))
    if weights is None:
        return MODELS[name](**sizes).eval()
    given = WeightsFile(weights) if isinstance(weights, Mapping) else read_weights(weights)
    return _build(name, given, sizes)


def load_trained(path: str | Path) -> nn.Module:
    """Load the model that a file was saved from; a published checkpoint is a CAV-MAE."""
    file = read_weights(path)
    names = {MODELS[name].__name__: name for name in MODELS}
    return _build(names.get(file.model, "cav_mae"), file, {})


def _build(name: str, file: WeightsFile, sizes: dict[str, Any]) -> nn.Module:
    config = dict(file.config) | sizes
    if name == "cav_mae" and not file.config:
        config = infer_cav_mae_config(file.state, sizes.get("mel_bins", 128)) | sizes
        if "num_heads" not in config:
            width = config["embed_dim"]
            raise OptionError(f"the heads of a width of {width} are unknown: give num_heads=….")
    return load_weights(MODELS[name](**config), file.state).eval()


def pretrained_names() -> list[str]:
    """Return the names of the packaged models."""
    return sorted(path.stem for path in PRETRAINED.glob("*.safetensors"))


def pretrained_path(name: str) -> Path:
    """Return the weights file of a packaged model."""
    if name not in pretrained_names():
        raise OptionError(unknown_name("pretrained model", name, pretrained_names()))
    return PRETRAINED / f"{name}.safetensors"


def from_published(name: str) -> str:
    """Translate a key of a published CAV-MAE checkpoint to our name.

    >>> from_published("module.blocks_a.0.norm1_v.weight")
    'blocks.audio.0.own_norm1.video.weight'
    """
    for letter, modality in (("a", "audio"), ("v", "video")):
        for theirs, ours in _RENAMES:
            name = re.sub(theirs.replace("@", letter), ours.replace("@", modality), name)
    return name


def read_weights(path: str | Path) -> WeightsFile:
    """Read a safetensors file, or a pickle of tensors (other objects are never executed)."""
    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"no weights at {path}: give the path of a .safetensors or .pth file.")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        fault = "it is damaged or contains other objects, which are never executed"
        raise WeightsError(
            f"{path} is not a checkpoint of plain tensors ({error}): {fault}."
        ) from error
    for wrapper in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not all(isinstance(v, Tensor) for v in content.values()):
        raise WeightsError(f"{path} is not a mapping from names to tensors.")
    return WeightsFile(content)


def _read_safetensors(path: Path) -> WeightsFile:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise WeightsError(f"{path} is not a readable safetensors file: {error}.") from error
    if BASE in metadata:
        state = {**read_weights(pretrained_path(metadata[BASE])).state, **state}
    config = json.loads(metadata.get("config", "{}"))
    return WeightsFile(state, config, metadata.get("model", "CavMae"))


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """Load tensors under published names or ours into `model`, all or none, and return the model.

    An error lists all keys that are missing, unexpected or of another shape.
    """
    state = {from_published(name): value for name, value in weights.items()}
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
    lists = [f"{len(own)} {kind}: {', '.join(own)}" for kind, own in problems.items() if own]
    if lists:
        raise WeightsError(f"these weights do not fit {type(model).__name__}: {'; '.join(lists)}.")
    model.load_state_dict(state)
    return model


def save_weights(model: nn.Module, path: str | Path, base: str | None = None) -> None:
    """Write the model's weights, and its sizes if it has a `config`, as one safetensors file.

    With `base`, the name of a packaged model, only the tensors that differ are written.
    """
    metadata = {"config": json.dumps(getattr(model, "config", {})), "model": type(model).__name__}
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    if base is not None:
        metadata[BASE] = base
        for name, value in read_weights(pretrained_path(base)).state.items():
            if name in state and torch.equal(value, state[name]):
                del state[name]
    with atomic_path(path) as part:
        save_file(state, part, metadata=metadata)


def infer_cav_mae_config(state: Mapping[str, Tensor], mel_bins: int = 128) -> dict[str, Any]:
    """Infer the sizes of a CAV-MAE from its tensors; heads only of a ViT's width, 64 each."""
    ours = {from_published(name): value.shape for name, value in state.items()}
    try:
        dim, *_, patch = ours["patch_embed.video.weight"]  # (D, 3, patch, patch)
        sizes = {
            "embed_dim": dim,
            "mlp_ratio": ours["shared_blocks.0.mlp.fc1.weight"][0] / dim,
            "audio_length": ours["positions.audio"][1] * patch * patch // mel_bins,
            "mel_bins": mel_bins,
            "image_size": round(ours["positions.video"][1] ** 0.5) * patch,
            "patch": patch,
            "num_classes": ours["head.1.weight"][0],
        }
    except KeyError as error:
        fault = "these are not the weights of a fine-tuned CAV-MAE"
        raise WeightsError(f"{fault}: no {error}.") from error
    sizes["depth"] = len({n.split(".")[2] for n in ours if n.startswith("blocks.audio.")})
    sizes["fusion_depth"] = len({n.split(".")[1] for n in ours if n.startswith("shared_blocks.")})
    return sizes | ({"num_heads": dim // 64} if dim in VIT_WIDTHS else {})
