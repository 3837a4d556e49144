"""Models that fulfil the contract: CAV-MAE of any size, with or without a third sensor, and a toy.

A model of your own needs no base class: three attributes and two methods, see `dasp.core.contract`.
`faster` runs the frozen encoders of any of them in fewer bits, or compiled.
"""

from dasp.models.build import MODELS, load_model, load_trained
from dasp.models.cav_mae import CavMae
from dasp.models.cav_mae_depth import CavMaeDepth
from dasp.models.faster import faster
from dasp.models.toy import Toy
from dasp.models.weights import load_weights, save_weights

__all__ = [
    "MODELS",
    "CavMae",
    "CavMaeDepth",
    "Toy",
    "faster",
    "load_model",
    "load_trained",
    "load_weights",
    "save_weights",
]
