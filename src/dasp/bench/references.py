"""Methods and models by what a user writes: a name, a file of weights, or `file.py:name`."""

import hashlib
import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any, cast

from torch import nn

from dasp.core.contract import check_parts
from dasp.core.errors import ContractError, OptionError, unknown_name
from dasp.methods import METHODS, Method
from dasp.models import faster, load_trained
from dasp.models.faster import WAYS, Kind
from dasp.models.pretrained import pretrained_path

_moved: dict[str, Path] = {}  # where a file of references lies, on a machine where it is elsewhere


def find_method(reference: str) -> type[Method]:
    """Return a registered method, or the class `Name` of `path/to/file.py:Name`."""
    if ".py:" not in reference:
        return METHODS[reference]
    found = _from_file(reference)
    if not (inspect.isclass(found) and issubclass(found, Method)):
        raise ContractError(f"{reference} is not a subclass of dasp.Method.")
    return found


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
        model = _from_file(reference)()
        if not isinstance(model, nn.Module):
            raise ContractError(f"{reference}() must return a torch module.")
        check_parts(model)
        return model.eval()
    shipped = not Path(reference).suffix
    return load_trained(pretrained_path(reference) if shipped else reference)


def model_name(reference: str) -> str:
    """Return a short name for tables and files.

    >>> model_name("models/mine.py:build"), model_name("sounding_shapes_0:int8")
    ('mine', 'sounding_shapes_0:int8')
    """
    plain, kind = split_kind(reference)
    name = Path(plain.rsplit(":", 1)[0]).stem
    return name if kind is None else f"{name}:{kind}"


def split_kind(reference: str) -> tuple[str, Kind | None]:
    """Part a model's reference from the kind of its faster encoders, None where they are plain.

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
    """Return the file of a user's own that a reference names, as it is written there.

    >>> own_file("my/model.py:build"), own_file("dasp")
    ('my/model.py', None)
    """
    name, own, _ = reference.partition(".py:")
    return f"{name}.py" if own else None


def absolute(reference: str) -> str:
    """Return a reference whose file of weights is found from any folder."""
    name, colon, rest = reference.partition(":")
    return f"{Path(name).resolve()}{colon}{rest}" if Path(name).suffix else reference


def move_file(name: str, path: Path) -> None:
    """Find the file that references name so at another path."""
    _moved[name] = path


def code_digest(method: type[Method]) -> str:
    """Return what tells results of other code: a method's version, or the hash of its file."""
    version = vars(method).get("version")  # its own: a subclass is other code
    if version is not None:
        return f"version {version}"
    return hashlib.sha256(Path(inspect.getfile(method)).read_bytes()).hexdigest()[:16]


def _from_file(reference: str) -> Any:
    name, _, attribute = reference.rpartition(":")
    path = _moved.get(name, Path(name)).resolve()
    if not path.is_file():
        raise OptionError(f"no file {path}, named by {reference}.")
    module_name = f"dasp_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
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
