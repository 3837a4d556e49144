"""Adapt a PyTorch Lightning module while `Trainer.predict` runs.

    trainer = Trainer(callbacks=[AdaptInPredict("dasp", lr=1e-3)])
    answers = trainer.predict(module, loader)  # per batch: logits, diagnosis, updated, …

The loader yields inputs {name: (B, ...)}, or (inputs, labels), whose labels are not used.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from dasp.core.errors import InputError
from dasp.methods import Adaptation, Method, adapt
from dasp.service.wire import outcome_facts


class AdaptInPredict(Callback):
    """Replaces the module's `predict_step` by an adaptation as long as `predict` runs.

    The module is returned to its source weights afterwards; `tta.save()` before that, in a
    callback of your own, keeps what was learned.
    """

    tta: Adaptation | None = None
    """The adaptation while `predict` runs."""

    def __init__(
        self,
        method: str | type[Method] = "dasp",
        model: Callable[[LightningModule], Any] | None = None,
        **options: Any,
    ) -> None:
        """Choose what adapts.

        Args:
            method: as for `dasp.adapt`.
            model: returns the model of the contract, given the module, such as
                `lambda module: dasp.wrap(module.net, ...)`; by default the module itself.
            **options: of `dasp.adapt`.
        """
        self._method, self._find, self._options = method, model or (lambda module: module), options

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Adapt the module."""
        self.tta = adapt(self._find(pl_module), self._method, **self._options)
        pl_module.predict_step = self._step  # type: ignore[method-assign]

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Return the module to its own `predict_step` and its source weights."""
        self._restore(pl_module)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Do the same if `predict` fails."""
        self._restore(pl_module)

    def _restore(self, module: LightningModule) -> None:
        if self.tta is not None:
            self.tta.reset()
            self.tta = None
            del module.predict_step  # the class has its own

    def _step(self, batch: Any, *_: Any) -> dict[str, Any]:
        assert self.tta is not None
        inputs = batch if isinstance(batch, Mapping) else batch[0]
        if not isinstance(inputs, Mapping):
            raise InputError(
                "a batch must be inputs {name: tensor}, or (inputs, labels), not "
                f"{type(inputs).__name__}: let the loader return one of them."
            )
        outcome = self.tta(inputs)  # as a dict: Lightning does not take frozen dataclasses
        return {"logits": outcome.logits, **outcome_facts(outcome)}
