"""Models that fulfil the contract: CAV-MAE of any size, with or without depth or for sequences of
frames, CNNs of body-worn sensors, and a toy model.

A model of your own needs no base class: three attributes and two methods, see `dasp.core.contract`.
`faster` runs the frozen encoders of any model in lower precision, or compiled.
"""

from dasp.models.cav_mae import CavMae, CavMaeDepth
from dasp.models.clips import CavMaeClips
from dasp.models.encoders import faster
from dasp.models.graphs import Exported, export
from dasp.models.hub import from_pretrained, push_to_hub, save_pretrained
from dasp.models.inertial import InertialNet
from dasp.models.toy import Toy
from dasp.models.weights import (
    MODELS,
    load_model,
    load_trained,
    load_weights,
    pretrained_names,
    pretrained_path,
    save_weights,
)
from dasp.models.wrap import Wrapped, wrap

__all__ = [
    "MODELS", "CavMae", "CavMaeClips", "CavMaeDepth", "Exported", "InertialNet", "Toy", "Wrapped",
    "export", "faster", "from_pretrained", "load_model", "load_trained", "load_weights",
    "pretrained_names", "pretrained_path", "push_to_hub", "save_pretrained", "save_weights", "wrap",
]  # fmt: skip
