"""Multi-modal test-time adaptation: diagnose the shifted sensor, adapt it, keep the rest steady."""

from importlib import import_module
from types import ModuleType

from dasp import models
from dasp.bench.checks import check_method
from dasp.core.contract import check_model
from dasp.core.errors import DaspError
from dasp.core.types import Attention, Diagnosis, Fused, Outcome, Prediction, Step
from dasp.core.version import __version__
from dasp.methods import METHODS, Adaptation, Method, adapt
from dasp.models import load_model
from dasp.service import events

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
    "events",
    "load_model",
    "models",
    "page",
]


def __getattr__(name: str) -> ModuleType:
    """Import `dasp.page` when it is first asked for: it stands above all other rooms."""
    if name == "page":
        return import_module("dasp.page")
    raise AttributeError(f"module 'dasp' has no attribute '{name}'.")
