"""Begin a run: adapt the model, with all that its method asks for beyond a batch."""

import numpy as np

from dasp.bench.features import Features
from dasp.bench.results import Cell
from dasp.core.types import Inputs
from dasp.methods import Adaptation, Method, adapt
from dasp.streams.visits import CLEAN


def start(cell: Cell, method: type[Method], features: Features) -> Adaptation:
    """Return the adaptation of a cell, told the stream's length and fitted where it must be."""
    options = dict(cell.options)
    if "stream_length" in options and options["stream_length"] is None:
        options["stream_length"] = stream_length(cell, len(features.labels))
    tta = adapt(features.model, method, seed=cell.seed, **options)
    if cell.source:
        tta.fit([source_inputs(features, cell.source["samples"])])
    return tta


def stream_length(cell: Cell, samples: int) -> int:
    """Return the number of batches until the next reset, times the steps that each is given."""
    batches = longest = 0
    for visit in cell.visits():
        batches = visit.batches(samples, cell.batch_size) + (0 if visit.reset else batches)
        longest = max(longest, batches)
    steps: int = cell.options["steps"]
    return longest * steps


def source_inputs(features: Features, samples: int) -> Inputs:
    """Return clean training samples of a data set as one batch, kept in the store."""
    source = Features(features.material.source(samples), features.model, features.store)
    count = len(source.labels)
    ((_, inputs),) = source.batches([CLEAN], encoded=False, order=np.arange(count), size=count)
    return inputs
