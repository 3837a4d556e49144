"""Models that fulfil the contract: CAV-MAE of any size, and a toy with any number of modalities.

A model of your own needs no base class: three attributes and two methods, see `dasp.core.contract`.
"""

from dasp.models.build import MODELS, load_model
from dasp.models.cav_mae import CavMae
from dasp.models.toy import Toy
from dasp.models.weights import load_weights, save_weights

__all__ = ["MODELS", "CavMae", "Toy", "load_model", "load_weights", "save_weights"]
