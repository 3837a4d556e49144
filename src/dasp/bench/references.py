"""Methods and models by what a user writes: a name, a file of weights, or `file.py:name`."""

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from dasp.bench.results import digest
from dasp.core.contract import MultiModalModel, check_parts, encode_checked, fuse_checked
from dasp.core.errors import ContractError, OptionError, unknown_name
from dasp.core.types import Inputs
from dasp.methods import METHODS, Method
from dasp.methods.loop import LOOP_VERSION
from dasp.models import faster, load_trained
from dasp.models.encoders import WAYS, Kind
from dasp.models.weights import pretrained_path


def find_method(reference: str) -> type[Method]:
    """Return a registered method, or the class `Name` of `path/to/file.py:Name`."""
    if ".py:" not in reference:
        return METHODS[reference]
    found = from_file(reference)
    if not (inspect.isclass(found) and issubclass(found, Method)):
        raise ContractError(f"{reference} is not a subclass of dasp.Method.")
    return found


def versions_of(reference: str) -> dict[str, Any]:
    """Return the versions of the loop, of a method and of every method that it is derived from.

    A user's file may be edited without raising a `version`, so that its content counts too.
    """
    versions = []
    for method in find_method(reference).__mro__:
        if issubclass(method, Method) and method is not Method:
            words = [method.__name__, str(vars(method).get("version"))]
            if method.__module__.partition(".")[0] != "dasp":
                with suppress(TypeError, OSError):  # a class typed at a prompt has no file
                    words.append(file_digest(Path(inspect.getfile(method))))
            versions.append(" ".join(words))
    return {"method": versions, "loop": LOOP_VERSION}


def file_digest(path: Path) -> str:
    """Hash the content of a file: 16 hex digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def find_model(reference: str) -> nn.Module:
    """Return a model in evaluation mode.

    `reference` names one of the package, a file of CAV-MAE weights (.safetensors, .pth), or
    `path/to/file.py:build`, a function; with `:int8` or the like, its encoders are made faster.
    """
    reference, kind = split_kind(reference)
    if kind is not None:
        return faster(find_model(reference), kind)
    if ".py:" in reference:
        model = from_file(reference)()
        if not isinstance(model, nn.Module):
            raise ContractError(f"{reference}() must return a torch module.")
        check_parts(model)
        return model.eval()
    return load_trained(reference if Path(reference).suffix else pretrained_path(reference))


def model_digest(
    model: nn.Module, reference: str = "", inputs: Callable[[], Inputs] | None = None
) -> str:
    """Hash a model's class, sizes and weights; of a user's own also its code and what it says.

    Its code: the file that builds it and those of its classes. What it says to `inputs()`, one
    sample, also tells of code that these files import.
    """
    weights = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        weights.update(name.encode())
        weights.update(_bytes(value))
    name, own, function = reference.partition(".py:")
    files = {Path(f"{name}.py").resolve()} if own else set()
    for kind in {base for part in model.modules() for base in type(part).__mro__}:
        if kind.__module__.partition(".")[0] not in ("dasp", "torch", "builtins"):
            with suppress(TypeError, OSError):  # a class typed at a prompt has no file
                files.add(Path(inspect.getfile(kind)).resolve())
    code = sorted(map(file_digest, files)) + [function] * bool(own)
    if code and inputs is not None and not hasattr(model, "faster_encoders"):
        code.append(_answer(model, inputs()))
    config = getattr(model, "config", {})
    return digest([type(model).__qualname__, config, weights.hexdigest(), *code])


@torch.no_grad()
def _answer(model: nn.Module, inputs: Inputs) -> str:
    """Hash the tokens and logits of a model on the processor, with one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with several, sums may round differently
    try:
        tokens = encode_checked(cast(MultiModalModel, model), inputs)
        fused = fuse_checked(cast(MultiModalModel, model), tokens)
    finally:
        torch.set_num_threads(threads)
    said = [*(tokens[name] for name in sorted(tokens)), fused.logits]
    return hashlib.sha256(b"".join(_bytes(value).tobytes() for value in said)).hexdigest()


def _bytes(value: Tensor) -> memoryview:
    flat = value.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data


def model_names(digests: Mapping[str, str]) -> dict[str, str]:
    """Return the name of each model by its reference, given the digests; different models differ.

    >>> list(model_names({"a/m.pth": "1", "b/m.pth": "2", "f.py:x": "3", "f.py:y": "4"}).values())
    ['a/m', 'b/m', 'f:x', 'f:y']
    """
    names, parts = {reference: model_name(reference) for reference in digests}, 0
    while True:
        owners = {name: {digests[r] for r in names if names[r] == name} for name in names.values()}
        shared = [reference for reference, name in names.items() if len(owners[name]) > 1]
        if not shared or parts > max(len(Path(reference).resolve().parts) for reference in shared):
            return names
        parts += 1
        names |= {reference: model_name(reference, parts) for reference in shared}


def model_name(reference: str, parts: int = 0) -> str:
    """Return a short name for tables and files: "mine:int8" of "models/mine.py:build:int8".

    With `parts`, also the function and so many parts of the path: "models/mine:build:int8".
    """
    plain, kind = split_kind(reference)
    file, colon, function = plain.rpartition(":")
    path = Path(file if colon else plain).with_suffix("")
    words = ["/".join(path.resolve().parts[-parts:]) if parts else path.name]
    return ":".join(words + [function] * bool(parts and colon) + ([kind] if kind else []))


def split_kind(reference: str) -> tuple[str, Kind | None]:
    """Split a model's reference from the kind of its faster encoders, None if they are plain.

    >>> split_kind("sounding_shapes_0:int8"), split_kind("mine.py:int8")
    (('sounding_shapes_0', 'int8'), ('mine.py:int8', None))
    """
    plain, colon, kind = reference.rpartition(":")
    if not colon or plain.endswith(".py"):
        return reference, None
    if kind not in WAYS:
        raise OptionError(unknown_name(f"kind of encoders in {reference}", kind, WAYS))
    return plain, cast(Kind, kind)


def absolute(reference: str) -> str:
    """Return a reference whose file is found from any directory.

    >>> absolute("dasp"), absolute("/a/b.py:build"), absolute("/a/../b.pth:int8")
    ('dasp', '/a/b.py:build', '/b.pth:int8')
    """
    name, colon, rest = reference.partition(":")
    return f"{Path(name).resolve()}{colon}{rest}" if Path(name).suffix else reference


def from_file(reference: str) -> Any:
    """Return the attribute that `path/to/file.py:name` names; an edited file is imported anew."""
    name, _, attribute = reference.rpartition(":")
    path = Path(name).resolve()
    if not path.is_file():
        raise OptionError(f"{path} does not exist; it is named by {reference}.")
    name = f"dasp_user_{path.stem}_{digest([str(path), file_digest(path)])}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        try:
            spec.loader.exec_module(sys.modules[name])  # type: ignore[union-attr]
        except BaseException as error:
            del sys.modules[name]
            if isinstance(error, SystemExit):
                raise OptionError(f"{path} calls sys.exit(): raise an error instead.") from error
            raise
    found = vars(sys.modules[name])
    if attribute not in found:
        names = [n for n, value in found.items() if callable(value) and n[0] != "_"]
        raise OptionError(unknown_name(f"name in {path}", attribute, names))
    return found[attribute]
