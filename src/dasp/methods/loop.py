"""The one loop: infer, adapt, guard, remember. `dasp.adapt` returns an `Adaptation`."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dasp.core.contract import check_batch, check_placement
from dasp.core.errors import ContractError, OptionError
from dasp.core.seeding import batch_seed
from dasp.core.types import Diagnosis, Inputs, Outcome, Prediction, Step, Tokens, Trainable
from dasp.methods import missing
from dasp.methods import state as saved
from dasp.methods.base import Method, Predict, build_method
from dasp.methods.finite import finite_rows, spoilt
from dasp.methods.owners import Owners
from dasp.methods.rebalance import MEMORY, build_rebalancer
from dasp.methods.state import Memory, Snapshot

_OWNERS = Owners()


class Adaptation:
    """A model that adapts while it is used. Calling it *is* adapting.

    Whatever goes wrong inside a call (a bad batch, an exception of the model's), the state
    afterwards is the state before it.
    """

    def __init__(
        self,
        method: Method,
        *,
        lr: float | None = None,
        steps: int = 1,
        predict: Predict | None = None,
        autocast: bool = False,
        rebalance: float = 0.0,
        rebalance_memory: int = MEMORY,
    ) -> None:
        self.method = method
        self.lr = method.default_lr if lr is None else lr
        self.steps = steps
        self.predict: Predict = predict or method.default_predict
        self.autocast = autocast
        self._check_options()
        self._rebalancer = build_rebalancer(method, rebalance, rebalance_memory)
        self._is_frozen = False
        _OWNERS.claim(self, method)
        method.eval()
        method.requires_grad_(False)
        for parameter in method.trainable():
            parameter.requires_grad_(True)
        self.memory = Memory(method, self.lr)
        self._source: Snapshot | None = None

    def __repr__(self) -> str:
        method, model = type(self.method).__name__, type(self.model).__name__
        return f"<{method} on {model}, {self.memory.batch_index} batches seen, lr {self.lr:g}>"

    @property
    def source(self) -> Snapshot:
        """The state that `reset` returns to: the one before the first batch.

        It is taken when first needed, so initial weights may be set until then:
        `tta.adapters["audio"].stable.down.weight.data.copy_(mine)`.
        """
        if self._source is None:
            self._source = self.memory.capture()
        return self._source

    @property
    def model(self) -> nn.Module:
        """The model being adapted."""
        return self.method.model  # type: ignore[return-value]

    @property
    def adapters(self) -> nn.ModuleDict:
        """The modules that the method added, by modality; empty if it tunes the model itself."""
        return self.method.adapters

    @property
    def trainable(self) -> Trainable:
        """What is trained, of how much; printing it gives a report."""
        return self.memory.report()

    @torch.inference_mode(False)
    @torch.enable_grad()
    def __call__(self, inputs: Inputs) -> Outcome:
        """Infer and adapt on raw inputs {name: (B, ...)}; also inside `torch.no_grad()`.

        Modalities may be missing, but not all: leave their names out (see `methods.missing`).
        """
        inputs = self._checked(inputs, "inputs")
        finite = finite_rows(inputs)
        if not finite.all():
            return self._infer_only_finite(inputs, finite)
        return self._run(self._prepare(inputs))

    @torch.inference_mode(False)
    @torch.enable_grad()
    def on_tokens(self, tokens: Tokens) -> Outcome:
        """Infer and adapt on tokens {name: (B, N, D)} already encoded by this model."""
        tokens = self._checked(tokens, "tokens")
        finite = finite_rows(tokens)
        if not finite.all():
            return self._infer_only_finite(tokens, finite, encoded=True)
        return self._run(tokens)

    def alone(self, inputs: Inputs) -> dict[str, Tensor]:
        """Return what the adapted model says of each modality by itself: {name: (B, C)} logits.

        Changes nothing. Beside the joint prediction it tells which sensor a mistake comes from.
        """
        return self._alone(self._prepare(self._checked(inputs, "inputs")))

    def alone_on_tokens(self, tokens: Tokens) -> dict[str, Tensor]:
        """Do as `alone` does, on tokens {name: (B, N, D)} already encoded by this model."""
        return self._alone(self._checked(tokens, "tokens"))

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Within this block, calls infer with the adapted state and change nothing."""
        previous, self._is_frozen = self._is_frozen, True
        try:
            yield
        finally:
            self._is_frozen = previous

    def reset(self) -> None:
        """Return to the source state, bit for bit: weights, optimiser, averages, draws."""
        _OWNERS.check(self)
        self.memory.restore(self.source)

    def fit(self, source: Iterable[Inputs]) -> None:
        """Let the method learn from clean source batches; what it learns survives `reset`."""
        self.reset()
        try:
            self.method.fit(source)
        except BaseException:
            self.memory.restore(self.source)
            raise
        self._source = self.memory.capture()

    def save(self, path: str | Path) -> None:
        """Write the adapted state (not the model) to one safetensors file, atomically."""
        _OWNERS.check(self)
        saved.save(path, self.memory, self.source)

    def load(self, path: str | Path) -> None:
        """Read a state saved from the same model, method and hyper-parameters.

        Any other is refused and changes nothing. lr, steps and predict are not part of a state.
        """
        _OWNERS.check(self)
        self.memory.restore(saved.load(path, self.memory, self.source))

    def _run(self, batch: Tokens) -> Outcome:
        if self._is_frozen:
            prediction = self._infer(batch)
            return Outcome(self._rebalanced(prediction.logits), prediction.diagnosis)
        before = self.memory.capture()
        self._source = self._source or before
        seed = batch_seed(self.method.seed, self.memory.batch_index)
        self.method.generator.manual_seed(seed)
        try:
            outcome = self._adapt(batch)
        except BaseException:
            self.memory.restore(before)
            raise
        if outcome.rejected:
            self.memory.restore(before)
        else:
            self.memory.batch_index += 1
        return outcome

    def _adapt(self, batch: Tokens) -> Outcome:
        first: Step | None = None
        updated, restart = False, False
        for _ in range(self.steps):
            with self._precision():
                step = missing.step(self.method, batch)
            first = first or step
            if step.loss is None:
                break
            refusal = self.memory.descend(step)
            if refusal:
                return _outcome(first, self._rebalanced(first.logits), rejected=refusal)
            updated, restart = True, restart or step.restart
        assert first is not None
        logits = first.logits
        if self.predict == "after" and updated:
            logits = self._infer(batch).logits
        reported = self._rebalanced(logits)
        if self._rebalancer is not None:
            self._rebalancer.remember(logits)
        rollback = None
        if restart:
            self.memory.restore(self.source, keep_index=True)
            rollback = f"{type(self.method).__name__} asked to start over from the source state"
        return _outcome(first, reported, updated=updated, rollback=rollback)

    def _rebalanced(self, logits: Tensor) -> Tensor:
        return logits if self._rebalancer is None else self._rebalancer(logits)

    @torch.no_grad()
    def _infer(self, batch: Tokens) -> Prediction:
        with self._precision():
            return missing.predict(self.method, batch)

    @torch.no_grad()
    def _alone(self, batch: Tokens) -> dict[str, Tensor]:
        with self._precision():
            tokens = missing.adapted_tokens(self.method, batch)
            return {name: self.method.fuse({name: own}).logits for name, own in tokens.items()}

    def _infer_only_finite(self, batch: Inputs, finite: Tensor, encoded: bool = False) -> Outcome:
        """Refuse a batch with NaN or Inf: no update, NaN logits on the bad rows alone."""
        shape = (len(finite), self.method.model.num_classes)
        logits = torch.full(shape, torch.nan, device=finite.device)
        diagnosis: Diagnosis | None = None
        if finite.any():
            rows = {name: value[finite] for name, value in batch.items()}
            prediction = self._infer(rows if encoded else self._prepare(rows))
            logits[finite], diagnosis = self._rebalanced(prediction.logits), prediction.diagnosis
        return Outcome(logits, diagnosis, rejected=spoilt(batch, finite))

    def _prepare(self, inputs: Inputs) -> Tokens:
        if self.method.tunes_encoder:
            return inputs
        with torch.no_grad(), self._precision():
            return self.method.encode(inputs)

    def _checked(self, batch: Inputs, kind: str) -> Inputs:
        _OWNERS.check(self)
        if kind == "tokens" and self.method.tunes_encoder:
            raise ContractError(
                f"{type(self.method).__name__} tunes the encoder: call it with raw inputs."
            )
        check_batch(batch, self.method.model, kind, part=True)
        check_placement(batch, self.model)
        # A tensor made in inference mode cannot take part in learning; its copy can.
        return {name: v.clone() if v.is_inference() else v for name, v in batch.items()}

    def _precision(self) -> torch.autocast:
        parameter = next(self.model.parameters(), None)
        device = "cpu" if parameter is None else parameter.device.type
        return torch.autocast(device, dtype=torch.bfloat16, enabled=self.autocast)

    def _check_options(self) -> None:
        if not (isinstance(self.steps, int) and self.steps >= 1):
            raise OptionError(f"steps must be a whole number from 1, not {self.steps!r}.")
        if self.predict not in ("before", "after"):
            raise OptionError(f"predict is 'before' or 'after' the update, not {self.predict!r}.")
        if not isinstance(self.autocast, bool):
            raise OptionError(f"autocast is True (bfloat16) or False, not {self.autocast!r}.")
        if not (isinstance(self.lr, int | float) and 0 < self.lr < float("inf")):
            raise OptionError(f"lr must be above 0 and finite, not {self.lr!r}.")


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
        seed: of adapters' initial weights and of a method's own draws.
        **hyper: hyper-parameters of the method, such as `variant="paper"`.
    """
    built = build_method(method, model, seed, **hyper)
    return Adaptation(
        built,
        lr=lr,
        steps=steps,
        predict=predict,
        autocast=autocast,
        rebalance=rebalance,
        rebalance_memory=rebalance_memory,
    )


def _outcome(
    step: Step,
    logits: Tensor,
    updated: bool = False,
    rejected: str | None = None,
    rollback: str | None = None,
) -> Outcome:
    loss = None if step.loss is None else float(step.loss.detach())
    return Outcome(logits.detach(), step.diagnosis, updated, loss, rejected, rollback)
