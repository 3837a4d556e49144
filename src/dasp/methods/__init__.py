"""Test-time adaptation methods, one file and one class per paper, and the loop that runs them.

`dasp.adapt(model, "dasp")` is the entry point. To add a method, read `base.Method` and a short file
such as `tent.py`, write a file of your own with a class decorated by `@METHODS.register("name")`,
and run `dasp.check_method("name")`. Files in this folder are found by themselves.
"""

from importlib import import_module
from pkgutil import iter_modules

from dasp.methods.base import METHODS, Method, hyperparameters
from dasp.methods.loop import LOOP_VERSION, Adaptation, adapt

__all__ = ["LOOP_VERSION", "METHODS", "Adaptation", "Method", "adapt", "hyperparameters"]

for _found in iter_modules(__path__):
    import_module(f"{__name__}.{_found.name}")
for _name in METHODS:
    globals()[METHODS[_name].__name__] = METHODS[_name]
    __all__.append(METHODS[_name].__name__)
