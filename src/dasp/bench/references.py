"""Methods and models by what a user writes: a name, a file of weights, or `file.py:name`."""

import hashlib
import importlib.util
import inspect
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from dasp.bench.results import digest
from dasp.core.contract import check_parts
from dasp.core.errors import ContractError, OptionError, unknown_name
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

    `reference` names a trained model of the package, a file of CAV-MAE weights (.safetensors,
    .pth), or `path/to/file.py:build`, a function that returns a model. With `:int8` (or another
    kind of `dasp.models.faster`) after it, its encoders are made faster.
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


def model_digest(model: nn.Module, reference: str = "") -> str:
    """Hash a model's class, sizes and weights, and the file that builds it if it is a user's."""
    weights = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        weights.update(name.encode())
        weights.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    name, own, _ = reference.partition(".py:")
    code = [file_digest(Path(f"{name}.py"))] if own else []
    config = getattr(model, "config", {})
    return digest([type(model).__qualname__, config, weights.hexdigest(), *code])


def model_name(reference: str) -> str:
    """Return a short name for tables and files: "mine:int8" of "models/mine.py:build:int8"."""
    plain, kind = split_kind(reference)
    name = Path(plain.rsplit(":", 1)[0]).stem
    return name if kind is None else f"{name}:{kind}"


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
    module_name = f"dasp_user_{path.stem}_{digest([str(path), file_digest(path)])}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, path)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)  # type: ignore[union-attr]
        except BaseException:
            del sys.modules[module_name]
            raise
    module = sys.modules[module_name]
    if not hasattr(module, attribute):
        names = [n for n, value in vars(module).items() if callable(value) and n[0] != "_"]
        raise OptionError(unknown_name(f"name in {path}", attribute, names))
    return getattr(module, attribute)
