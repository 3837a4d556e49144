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

_moved: dict[str, Path] = {}  # user files that lie elsewhere on this machine, by their written name


def find_method(reference: str) -> type[Method]:
    """Return a registered method, or the class `Name` of `path/to/file.py:Name`."""
    if ".py:" not in reference:
        return METHODS[reference]
    found = from_file(reference)
    if not (inspect.isclass(found) and issubclass(found, Method)):
        raise ContractError(f"{reference} is not a subclass of dasp.Method.")
    return found


def versions_of(reference: str) -> dict[str, Any]:
    """Return the versions of the code that decides a method's numbers.

    These are those of the loop, of the class and of every method that it is derived from.
    """
    classes = [c for c in find_method(reference).__mro__ if issubclass(c, Method)]
    return {"method": [_version(c) for c in classes if c is not Method], "loop": LOOP_VERSION}


def _version(method: type[Method]) -> str:
    """Return the name and the version that a class itself has.

    A user's file may be edited without raising a `version`, so that its content counts too.
    """
    words = [method.__name__, str(vars(method).get("version"))]
    if method.__module__.partition(".")[0] != "dasp":
        with suppress(TypeError, OSError):  # a class typed at a prompt has no file
            words.append(file_digest(Path(inspect.getfile(method))))
    return " ".join(words)


def file_digest(path: Path) -> str:
    """Hash the content of a file: 16 hex digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def find_model(reference: str) -> nn.Module:
    """Return a model in evaluation mode.

    `reference` is the name of a trained model that comes with the package, the path of CAV-MAE
    weights (.safetensors, .pth), or `path/to/file.py:build`, a function that returns a model.
    With `:int8` (or another kind of `dasp.models.faster`) after it, its encoders are made faster.
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
    shipped = not Path(reference).suffix
    return load_trained(pretrained_path(reference) if shipped else reference)


def model_digest(model: nn.Module, reference: str = "") -> str:
    """Hash a model's class, sizes and weights, and the file that builds it if it is a user's."""
    weights = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        weights.update(name.encode())
        weights.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    config = getattr(model, "config", {})
    file = own_file(reference)
    code = [] if file is None else [file_digest(_located(file))]
    return digest([type(model).__qualname__, config, weights.hexdigest(), *code])


def model_name(reference: str) -> str:
    """Return a short name for tables and files.

    >>> model_name("models/mine.py:build"), model_name("sounding_shapes_0:int8")
    ('mine', 'sounding_shapes_0:int8')
    """
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


def own_file(reference: str) -> str | None:
    """Return the user's file that a reference names, as it is written there.

    >>> own_file("my/model.py:build"), own_file("dasp")
    ('my/model.py', None)
    """
    name, own, _ = reference.partition(".py:")
    return f"{name}.py" if own else None


def absolute(reference: str) -> str:
    """Return a reference whose file of weights is found from any directory."""
    name, colon, rest = reference.partition(":")
    return f"{Path(name).resolve()}{colon}{rest}" if Path(name).suffix else reference


def move_file(name: str, path: Path) -> None:
    """Find the file that references write as `name` at another path."""
    _moved[name] = path


def _located(name: str) -> Path:
    """Return the path of a user's file on this machine."""
    return _moved.get(name, Path(name)).resolve()


def from_file(reference: str) -> Any:
    """Return the attribute that `path/to/file.py:name` names; an edited file is imported anew."""
    name, _, attribute = reference.rpartition(":")
    path = _located(name)
    if not path.is_file():
        raise OptionError(f"{path} does not exist; it is named by {reference}.")
    module_name = f"dasp_user_{path.stem}_{digest([str(path), file_digest(path)])}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[module_name]
            raise
    module = sys.modules[module_name]
    if not hasattr(module, attribute):
        names = [n for n, value in vars(module).items() if callable(value) and n[0] != "_"]
        raise OptionError(unknown_name(f"name in {path}", attribute, names))
    return getattr(module, attribute)
