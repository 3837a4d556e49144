"""One batch through one method: infer, adapt, guard, remember. Written once for all methods."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from dasp.core.seeding import batch_seed
from dasp.core.types import Diagnosis, Inputs, Outcome, Prediction, Step, Tokens
from dasp.methods import missing
from dasp.methods.base import Method
from dasp.methods.finite import overflown, predicted_rows
from dasp.methods.options import Options
from dasp.methods.rebalance import build_rebalancer
from dasp.methods.state import Memory, Snapshot


class Engine:
    """A method, what it has learnt, and how a batch changes that.

    Whatever goes wrong in a batch (what is not finite, an exception of the model's), the state
    afterwards is the state before it.
    """

    def __init__(self, method: Method, options: Options) -> None:
        self.method, self.options = method, options
        self._rebalancer = build_rebalancer(method, options.rebalance, options.rebalance_memory)
        method.eval()
        method.requires_grad_(False)
        for parameter in method.trainable():
            parameter.requires_grad_(True)
        self.memory = Memory(method, options.lr)
        self._source: Snapshot | None = None

    @property
    def source(self) -> Snapshot:
        """The state before the first batch, taken when it is first asked for."""
        if self._source is None:
            self._source = self.memory.capture()
        return self._source

    def forget_source(self) -> None:
        """Take the present state for the source state."""
        self._source = None

    def prepare(self, inputs: Inputs) -> Tokens:
        """Give the batch as the method's `step` receives it: encoded, or raw."""
        if self.method.tunes_encoder:
            return inputs
        with torch.no_grad(), self._precision():
            return self.method.encode(inputs)

    def learn(self, batch: Tokens) -> Outcome:
        """Infer on a prepared batch and adapt; if it is refused, nothing has changed."""
        before = self.memory.capture()
        self._source = self._source or before
        seed = batch_seed(self.method.seed, self.memory.batch_index)
        self.method.generator.manual_seed(seed)
        try:
            outcome = self._adapt(batch)
            if not outcome.rejected:
                self.method.group.settle()
        except BaseException:
            self.memory.restore(before)
            raise
        if not outcome.rejected:
            self.memory.batch_index += 1
            return self._own(outcome)
        self.memory.restore(before)
        return self._without_failures(batch, outcome)

    def infer(self, batch: Tokens) -> Outcome:
        """Infer on a prepared batch with the adapted state; changes nothing."""
        prediction = self._infer(batch)
        outcome = Outcome(self._rebalanced(prediction.logits), prediction.diagnosis)
        return self._without_failures(batch, outcome)

    def infer_rows(self, batch: Tokens, rows: Tensor, why: str) -> Outcome:
        """Infer on the samples that can be used, `rows` (B,) bool of a batch refused for the rest.

        `batch` holds those samples alone, prepared; the others get NaN logits. Where ranks share
        the stream, `rows` are those of all, and `batch` holds this rank's.
        """
        logits = torch.full((len(rows), self.method.model.num_classes), torch.nan)
        logits = logits.to(rows.device)
        diagnosis: Diagnosis | None = None
        if rows.any():
            prediction = self._infer(batch)
            own = self._rebalanced(prediction.logits)
            own[~predicted_rows(own)] = torch.nan
            logits[rows], diagnosis = own, prediction.diagnosis
        return self._own(Outcome(logits, diagnosis, rejected=why))

    @torch.no_grad()
    def alone(self, batch: Tokens) -> dict[str, Tensor]:
        """Predict from each modality of a prepared batch by itself: {name: (B, C)} logits."""
        with self._precision():
            tokens = missing.adapted_tokens(self.method, batch)
            return {name: self.method.fuse({name: own}).logits for name, own in tokens.items()}

    @torch.no_grad()
    def distances(self) -> dict[str, float]:
        """How far the weights are from their source, ‖θ − θ₀‖, by modality of the adapters.

        Weights that belong to no modality's adapter count as "shared".
        """
        squares: dict[str, list[Tensor]] = {}
        for path, weight in self.memory.weights.items():
            kind, _, rest = path.partition(".")
            owner = rest.split(".")[0] if kind == "adapters" else "shared"
            change = weight.float() - self.source.tensors[f"weight/{path}"].float()
            squares.setdefault(owner, []).append(change.square().sum())
        return {owner: float(torch.stack(own).sum().sqrt()) for owner, own in squares.items()}

    def _adapt(self, batch: Tokens) -> Outcome:
        first: Step | None = None
        updated, restart = False, False
        for _ in range(self.options.steps):
            with self._precision():
                step = missing.step(self.method, batch)
            if first is None:
                first = step
                if not (rows := predicted_rows(step.logits)).all():
                    return self._outcome(first, first.logits, rejected=overflown(rows))
            if step.rollback is not None:
                return self._rolled_back(batch, step)
            if step.loss is None:
                break
            refusal = self.memory.descend(step)
            if refusal:
                return self._outcome(first, first.logits, rejected=refusal)
            updated, restart = True, restart or step.restart
        assert first is not None
        return self._finished(batch, first, updated, restart)

    def _finished(self, batch: Tokens, first: Step, updated: bool, restart: bool) -> Outcome:
        """Report the prediction asked for, and start over if the method wants to."""
        logits = first.logits
        if self.options.predict == "after" and updated:
            logits = self._infer(batch).logits
            if not predicted_rows(logits).all():
                why = "the update made a prediction that is not finite: lower lr"
                return self._outcome(first, first.logits, rejected=why)
        outcome = self._outcome(first, logits, updated, rollback=self._rollback(restart))
        if self._rebalancer is not None:
            self._rebalancer.remember(logits)
        if restart:
            self.memory.restore(self.source, keep_index=True)
        return outcome

    def _rolled_back(self, batch: Tokens, step: Step) -> Outcome:
        """Return to the method's last good weights and predict with those."""
        self.method.roll_back()
        self.memory.forget_moments()
        logits = self._infer(batch).logits
        outcome = self._outcome(step, logits, rollback=step.rollback)
        if self._rebalancer is not None:
            self._rebalancer.remember(logits)
        return outcome

    def _rollback(self, restart: bool) -> str | None:
        name = type(self.method).__name__
        return f"{name} asked to start over from the source state" if restart else None

    def _without_failures(self, batch: Tokens, outcome: Outcome) -> Outcome:
        """Predict again without the samples that the model failed on, which spoil the diagnosis."""
        rows = predicted_rows(outcome.logits)
        if rows.all():
            return self._own(outcome)
        own = self.method.group.own(rows)
        good = {name: value[own] for name, value in batch.items()}
        return self.infer_rows(good, rows, overflown(own, rows))

    def _own(self, outcome: Outcome) -> Outcome:
        """Give what this rank asked for, of what all ranks' samples gave."""
        return replace(outcome, logits=self.method.group.own(outcome.logits))

    def _outcome(
        self,
        step: Step,
        logits: Tensor,
        updated: bool = False,
        rejected: str | None = None,
        rollback: str | None = None,
    ) -> Outcome:
        loss = None if step.loss is None else float(step.loss.detach())
        shown = self._rebalanced(logits).detach()
        return Outcome(shown, step.diagnosis, updated, loss, rejected, rollback)

    def _rebalanced(self, logits: Tensor) -> Tensor:
        return logits if self._rebalancer is None else self._rebalancer(logits)

    @torch.no_grad()
    def _infer(self, batch: Tokens) -> Prediction:
        with self._precision():
            return missing.predict(self.method, batch)

    def _precision(self) -> torch.autocast:
        model: nn.Module = self.method.model  # type: ignore[assignment]
        parameter = next(model.parameters(), None)
        device = "cpu" if parameter is None else parameter.device.type
        return torch.autocast(device, dtype=torch.bfloat16, enabled=self.options.autocast)
