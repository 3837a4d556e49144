"""`dasp.adapt`: the way in."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from dasp.methods.base import Method, Predict, build_method
from dasp.methods.checkpoint import Checkpoint
from dasp.methods.group import ALONE, Group
from dasp.methods.loop import Adaptation
from dasp.methods.options import Options
from dasp.methods.ranks import Ranks
from dasp.methods.rebalance import MEMORY
from dasp.methods.saved import about
from dasp.methods.sharding import enter
from dasp.service.recorder import Recorder

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@torch.inference_mode(False)
def adapt(
    model: nn.Module,
    method: str | type[Method] = "dasp",
    *,
    lr: float | None = None,
    steps: int = 1,
    predict: Predict | None = None,
    autocast: bool = False,
    rebalance: float = 0.0,
    rebalance_memory: int = MEMORY,
    log: str | Path | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 50,
    group: "ProcessGroup | Literal['world'] | None" = None,
    seed: int = 0,
    **hyper: Any,
) -> Adaptation:
    """Make a model adapt while it is used.

    The model is put in evaluation mode and frozen but for what the method trains; `tta(inputs)`
    then infers and adapts. `hyper` are the method's own keyword arguments.

    Args:
        model: any model of the contract, see `dasp.core.contract`.
        method: a registered name or a subclass of `Method`.
        lr: learning rate; None takes the method's own.
        steps: updates a batch.
        predict: whether the prediction counted is made before or after the update.
        autocast: run forward passes in bfloat16; losses and scores stay in float32.
        rebalance: from 0 (off) to 1, how firmly the predictions reported are spread evenly over
            the classes; for streams in which all classes are about as frequent.
        rebalance_memory: how many of the last predictions it remembers, a class.
        log: a file to which every event is appended as a line of JSON, see `dasp.events`.
        checkpoint: a file to which the state is written; `tta.resume()` goes on from it.
        checkpoint_every: how many batches lie between two checkpoints.
        group: the ranks that share one stream, "world" for all processes of `torchrun`: each calls
            with its part of every batch, and all learn what one process would learn from the
            joined batch (docs/distributed.md). Only the first writes `log` and `checkpoint`.
        seed: of adapters' initial weights and of a method's own draws.
        **hyper: hyper-parameters of the method, such as `variant="paper"`.
    """
    company = ALONE if group is None else _ranks(group, model)
    writes = company.rank == 0
    with company.together():
        built = build_method(method, model, seed, **hyper)
        built.group = company
        options = Options(
            lr=built.default_lr if lr is None else lr,
            predict=predict or built.default_predict,
            steps=steps,
            autocast=autocast,
            rebalance=rebalance,
            rebalance_memory=rebalance_memory,
        )
        keeper = None if checkpoint is None else Checkpoint(checkpoint, checkpoint_every, writes)
        recorder = Recorder(built.model.modalities, about(built), log if writes else None)
        adaptation = Adaptation(built, options, recorder, keeper)
        enter(company, adaptation.memory, options)
    return adaptation


def _ranks(group: "ProcessGroup | str", model: nn.Module) -> Group:
    return Ranks(group, next(model.parameters(), torch.empty(0)).device)
