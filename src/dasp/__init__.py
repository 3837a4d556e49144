"""Multi-modal test-time adaptation: diagnose the shifted sensor, adapt it, keep the rest steady."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dasp.core.version import __version__

if TYPE_CHECKING:
    import pandas as pd

    from dasp import models
    from dasp.bench.checks import check_method
    from dasp.bench.inspection import inspect
    from dasp.core.errors import DaspError
    from dasp.core.types import Attention, Diagnosis, Fused, Outcome, Prediction, Step
    from dasp.methods import METHODS, Adaptation, Method, adapt
    from dasp.methods.model_check import check_model
    from dasp.models import load_model, wrap
    from dasp.service import events
    from dasp.streams.example import example_stream

__all__ = [
    "METHODS",
    "Adaptation",
    "Attention",
    "DaspError",
    "Diagnosis",
    "Fused",
    "Method",
    "Outcome",
    "Prediction",
    "Step",
    "__version__",
    "adapt",
    "check_method",
    "check_model",
    "client",
    "events",
    "example_stream",
    "inspect",
    "load_model",
    "methods",
    "models",
    "page",
    "results",
    "serve",
    "wrap",
]

_MODULES = {name: f"dasp.{name}" for name in ("client", "methods", "models", "page", "serve")}
_MODULES["events"] = "dasp.service.events"
_PLACES = {
    "dasp.bench.checks": ("check_method",),
    "dasp.bench.inspection": ("inspect",),
    "dasp.core.errors": ("DaspError",),
    "dasp.core.types": ("Attention", "Diagnosis", "Fused", "Outcome", "Prediction", "Step"),
    "dasp.methods": ("METHODS", "Adaptation", "Method", "adapt"),
    "dasp.methods.model_check": ("check_model",),
    "dasp.models": ("load_model", "wrap"),
    "dasp.streams.example": ("example_stream",),
}


def results(folder: str | Path) -> "pd.DataFrame":
    """Return the results of a folder as a pandas DataFrame, see `dasp.report.frame.results`."""
    from dasp.report import frame  # needs the extra "bench"

    return frame.results(folder)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `dasp --help` needs no torch."""
    if name in _MODULES:
        return import_module(_MODULES[name])
    for module, names in _PLACES.items():
        if name in names:
            globals()[name] = value = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module 'dasp' has no attribute '{name}'.")


def __dir__() -> list[str]:
    return __all__
