"""One paper, one file, one class; the loop that runs them all; the check that all must pass.

`dasp.adapt(model, "dasp")` is the way in. To add a method, read `base.Method` and one of the
short files beside it (`tent.py`), write yours, decorate it with `@METHODS.register("name")`, and
run `dasp.check_method("name")` on it.
"""

from dasp.methods.base import METHODS, Method, hyperparameters

# In the order of the papers, which is the order of every table.
# isort: off
from dasp.methods.source import Source
from dasp.methods.tent import Tent
from dasp.methods.eata import Eata
from dasp.methods.sar import Sar
from dasp.methods.read import Read
from dasp.methods.abpem import Abpem
from dasp.methods.sumi import Sumi
from dasp.methods.tsa import Tsa
from dasp.methods.pta import Pta
from dasp.methods.brimpr import Brimpr
from dasp.methods.dasp import Dasp
# isort: on

from dasp.methods.loop import Adaptation
from dasp.methods.start import adapt

__all__ = [
    "METHODS",
    "Abpem",
    "Adaptation",
    "Brimpr",
    "Dasp",
    "Eata",
    "Method",
    "Pta",
    "Read",
    "Sar",
    "Source",
    "Sumi",
    "Tent",
    "Tsa",
    "adapt",
    "hyperparameters",
]
