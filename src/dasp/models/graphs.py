"""Export the frozen parts of a model: its encoders and its fusion, as graphs.

`export` writes them as ONNX or as programs of torch.export: one graph per encoder, and one of the
fusion for every set of modalities that it may be given. `Exported` reads them as a model of the
contract, so that a method that needs no gradient runs on it as on the original:

    export(model, inputs, "exported")
    tta = dasp.adapt(Exported("exported"), "triage", learn=False)

What a method learns stays outside of the graphs, in the state of the adaptation.
"""

import json
from collections.abc import Sequence
from itertools import combinations
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
    """The encoder of one modality as a function of a tensor."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the tokens (B, N, D)."""
        return (cast(MultiModalModel, self.model).encode({self.name: inputs[0]})[self.name],)


class FusionGraph(nn.Module):
    """The fusion of some modalities as a function of their tokens, in the model's order."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the embedding (B, D) and the logits (B, C)."""
        fused = cast(MultiModalModel, self.model).fuse(dict(zip(self.names, tokens, strict=True)))
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
        folder: directory for encoder-NAME.onnx, fusion-NAME+NAME.onnx (or .pt2) and model.json.
        kind: "onnx" (the extra [onnx]) or "torch" (programs of torch.export).
    """
    if kind not in SUFFIX:
        raise OptionError(f"kind is 'onnx' or 'torch', not {kind!r}.")
    check_batch(inputs, model)
    owner = cast(MultiModalModel, model)
    if len(inputs[owner.modalities[0]]) < 2:
        raise InputError("the example needs two samples at least: a size of 1 would be fixed.")
    model.eval()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    names, tokens = list(owner.modalities), owner.encode(inputs)
    for name in names:
        encoder = EncoderGraph(model, name)
        _write(encoder, (inputs[name],), _path(folder, kind, [name], "encoder"), [name], ["tokens"])
    for some in _subsets(names):
        given = tuple(tokens[name] for name in some)
        path = _path(folder, kind, some, "fusion")
        _write(FusionGraph(model, some), given, path, some, ["embedding", "logits"])
    width = owner.embed_dim
    about = {"kind": kind, "modalities": names, "num_classes": owner.num_classes,
             "embed_dim": width if isinstance(width, int) else dict(width)}  # fmt: skip
    with atomic_path(folder / ABOUT) as part:
        part.write_text(json.dumps(about, indent=2) + "\n")
    return folder


def _path(folder: str | Path, kind: str, names: Sequence[str], part: str) -> Path:
    return Path(folder, f"{part}-{'+'.join(names)}{SUFFIX[kind]}")


def _subsets(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return every non-empty set of modalities, in their order."""
    sizes = range(1, len(names) + 1)
    return [some for size in sizes for some in combinations(names, size)]


def _write(
    graph: nn.Module,
    given: tuple[Tensor, ...],
    path: Path,
    names: Sequence[str],
    results: list[str],
) -> None:
    size = torch.export.Dim("batch", min=1)
    sizes = (tuple({0: size} for _ in given),)  # *args is one argument
    with atomic_path(path) as part:
        if path.suffix == ".onnx":
            extra("onnxscript", "onnx")
            torch.onnx.export(
                graph, given, part, input_names=list(names), output_names=results, dynamo=True,
                dynamic_shapes=sizes, verbose=False, external_data=False,
            )  # fmt: skip
        else:
            torch.export.save(torch.export.export(graph, given, dynamic_shapes=sizes), part)


class Exported(nn.Module):
    """A model of the contract whose encoders and fusion are exported graphs.

    It has no weights that could be trained: use it with methods that need no gradient.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        path = Path(folder, ABOUT)
        if not path.is_file():
            raise DataError(f"no {path}: give a directory that dasp.models.export has written.")
        about = json.loads(path.read_text())
        names = self.modalities = tuple(about["modalities"])
        self.embed_dim: int | dict[str, int] = about["embed_dim"]
        self.num_classes: int = about["num_classes"]
        where = folder, about["kind"]
        self._encoders = {name: _opened(_path(*where, [name], "encoder")) for name in names}
        self._fusions = {some: _opened(_path(*where, some, "fusion")) for some in _subsets(names)}

    def encode(self, inputs: Inputs) -> dict[str, Tensor]:
        """Encode any subset of the modalities to tokens (B, N, D)."""
        return {name: self._encoders[name](value)[0] for name, value in inputs.items()}

    def fuse(self, tokens: Tokens) -> Fused:
        """Fuse the tokens of any non-empty subset."""
        some = tuple(name for name in self.modalities if name in tokens)
        embedding, logits = self._fusions[some](*(tokens[name] for name in some))
        return Fused(embedding, logits)


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
