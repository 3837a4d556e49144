"""Export the frozen parts of a model: the encoders and the fusion, as two graphs.

`export` writes them as ONNX or as programs of torch.export. `Exported` reads them as a model of
the contract, so that a method that needs no gradient runs on it as on the original:

    export(model, inputs, "exported")
    tta = dasp.adapt(Exported("exported"), "source")

What a method learns stays outside of the graphs, in the state of the adaptation.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from dasp.core.contract import MultiModalModel, check_batch
from dasp.core.errors import DataError, InputError, OptionError
from dasp.core.extras import extra
from dasp.core.files import atomic_path
from dasp.core.types import Fused, Inputs, Tokens

SUFFIX = {"onnx": ".onnx", "torch": ".pt2"}
ABOUT = "model.json"


class EncoderGraph(nn.Module):
    """The encoders of a model as one function of tensors, in the order of its modalities."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the tokens (B, N, D) of all modalities."""
        model = cast(MultiModalModel, self.model)
        tokens = model.encode(dict(zip(model.modalities, inputs, strict=True)))
        return tuple(tokens[name] for name in model.modalities)


class FusionGraph(nn.Module):
    """The fusion of a model as one function of tensors, in the order of its modalities."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the embedding (B, D) and the logits (B, C)."""
        model = cast(MultiModalModel, self.model)
        fused = model.fuse(dict(zip(model.modalities, tokens, strict=True)))
        return fused.embedding, fused.logits


@torch.no_grad()
def export(
    model: nn.Module,
    inputs: Inputs,
    folder: str | Path,
    kind: Literal["onnx", "torch"] = "onnx",
) -> Path:
    """Write the encoders and the fusion of a model to a directory, for batches of any size.

    Args:
        model: a model of the contract, in the state to be exported.
        inputs: an example {name: (B, ...)} with all modalities and at least two samples.
        folder: directory for encoder.onnx and fusion.onnx (or .pt2) and model.json.
        kind: "onnx" (the extra [onnx]) or "torch" (programs of torch.export).
    """
    if kind not in SUFFIX:
        raise OptionError(f"kind is 'onnx' or 'torch', not {kind!r}.")
    check_batch(inputs, model)
    owner = cast(MultiModalModel, model)
    if len(inputs[owner.modalities[0]]) < 2:
        raise InputError("the example needs two samples at least: a size of 1 would be fixed.")
    model.eval()
    given = tuple(inputs[name] for name in owner.modalities)
    encoder, fusion = EncoderGraph(model), FusionGraph(model)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    names = list(owner.modalities)
    tokens = [f"{name}_tokens" for name in names]
    _write(encoder, given, folder / f"encoder{SUFFIX[kind]}", names, tokens)
    found = encoder(*given)
    _write(fusion, found, folder / f"fusion{SUFFIX[kind]}", tokens, ["embedding", "logits"])
    width = owner.embed_dim
    about = {"kind": kind, "modalities": names, "num_classes": owner.num_classes,
             "embed_dim": width if isinstance(width, int) else dict(width)}  # fmt: skip
    with atomic_path(folder / ABOUT) as part:
        part.write_text(json.dumps(about, indent=2) + "\n")
    return folder


def _write(
    graph: nn.Module, given: tuple[Tensor, ...], path: Path, names: list[str], results: list[str]
) -> None:
    size = torch.export.Dim("batch", min=1)
    sizes = (tuple({0: size} for _ in given),)  # *args is one argument
    with atomic_path(path) as part:
        if path.suffix == ".onnx":
            extra("onnxscript", "onnx")
            torch.onnx.export(
                graph, given, part, input_names=names, output_names=results, dynamo=True,
                dynamic_shapes=sizes, verbose=False, external_data=False,
            )  # fmt: skip
        else:
            torch.export.save(torch.export.export(graph, given, dynamic_shapes=sizes), part)


class Exported(nn.Module):
    """A model of the contract whose encoders and fusion are exported graphs.

    It has no weights that could be trained: use it with methods that need no gradient. All
    modalities must be present.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        path = Path(folder, ABOUT)
        if not path.is_file():
            raise DataError(f"no {path}: give a directory that dasp.models.export has written.")
        about = json.loads(path.read_text())
        self.modalities: tuple[str, ...] = tuple(about["modalities"])
        self.embed_dim: int | dict[str, int] = about["embed_dim"]
        self.num_classes: int = about["num_classes"]
        files = [Path(folder, f"{part}{SUFFIX[about['kind']]}") for part in ("encoder", "fusion")]
        self._graphs = [_opened(file) for file in files]

    def encode(self, inputs: Inputs) -> dict[str, Tensor]:
        """Encode all modalities to tokens (B, N, D)."""
        return dict(zip(self.modalities, self._run(0, inputs), strict=True))

    def fuse(self, tokens: Tokens) -> Fused:
        """Fuse the tokens of all modalities."""
        embedding, logits = self._run(1, tokens)
        return Fused(embedding, logits)

    def _run(self, graph: int, values: Inputs) -> Sequence[Tensor]:
        if missing := [name for name in self.modalities if name not in values]:
            raise InputError(
                f"{', '.join(missing)} is missing: exported graphs take all modalities. Use the "
                "original model for streams in which sensors are missing."
            )
        found: Sequence[Tensor] = self._graphs[graph](*(values[name] for name in self.modalities))
        return found


def _opened(path: Path) -> Any:
    """Return a graph as a function of tensors."""
    if path.suffix == ".pt2":
        return torch.export.load(path).module()
    runtime = extra("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(*values: Tensor) -> list[Tensor]:
        arrays = [value.detach().cpu().numpy() for value in values]
        return [
            torch.from_numpy(a) for a in session.run(None, dict(zip(names, arrays, strict=True)))
        ]

    return run
