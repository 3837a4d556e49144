"""Methods and models by what a user writes: a name, a file of weights, or `file.py:name`."""

import hashlib
import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

from torch import nn

from dasp.core.contract import check_parts
from dasp.core.errors import ContractError, OptionError, unknown_name
from dasp.methods import METHODS, Method
from dasp.models import load_trained
from dasp.models.pretrained import pretrained_path


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
    """
    if ".py:" in reference:
        model = _from_file(reference)()
        if not isinstance(model, nn.Module):
            raise ContractError(f"{reference}() must return a torch module.")
        check_parts(model)
        return model.eval()
    shipped = not Path(reference).suffix
    return load_trained(pretrained_path(reference) if shipped else reference)


def model_name(reference: str) -> str:
    """Return a short name for tables and files."""
    return Path(reference.rsplit(":", 1)[0]).stem


def code_digest(method: type[Method]) -> str:
    """Return what tells results of other code: a method's version, or the hash of its file."""
    version = vars(method).get("version")  # its own: a subclass is other code
    if version is not None:
        return f"version {version}"
    return hashlib.sha256(Path(inspect.getfile(method)).read_bytes()).hexdigest()[:16]


def _from_file(reference: str) -> Any:
    name, _, attribute = reference.rpartition(":")
    path = Path(name).resolve()
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
