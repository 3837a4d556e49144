"""The update loop, written once for all methods: check a batch, infer, adapt, guard, restore.

Users call an `Adaptation`, which takes turns, counts and logs. The batch goes through `Loop`.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import torch
from torch import Tensor, nn

from dasp.core.contract import HasFusionQkv, name_of
from dasp.core.errors import ContractError, OptionError, StateError
from dasp.core.seeding import batch_seed
from dasp.core.types import Diagnosis, Inputs, Outcome, Prediction, Step, Tokens, Trainable
from dasp.methods.base import Method, Predict, device_of, hyperparameters, one_of, whole
from dasp.methods.checks import checked, clean_batches, finite_rows, not_finite, which
from dasp.methods.diagnosis import Diagnoser
from dasp.methods.distributed import PeerError, Ranks, apart
from dasp.methods.losses import predicted_rows
from dasp.methods.needs import build_method
from dasp.methods.norms import trained_batch_norms
from dasp.methods.rate import TRIALS, LearningRate, check_rate, relative_change
from dasp.methods.rebalance import MEMORY, build_rebalancer
from dasp.methods.selftest import KEPT, SelfTest, selftest
from dasp.methods.sources import check_open, claim, return_to_source
from dasp.methods.state import (
    Checkpoint,
    Memory,
    Snapshot,
    State,
    describe,
    read_state,
    write_state,
)
from dasp.methods.turns import Turns, evaluating
from dasp.service.events import Recorder

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

LOOP_VERSION = 1
"""Results are stored under it: increase it when an edit of what methods share changes numbers."""

Autocast = bool | Literal["bfloat16", "float16"]
PRECISIONS: dict[Autocast, torch.dtype] = {
    True: torch.bfloat16,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
OVERFLOW = "the model's prediction is NaN or Inf, "


@dataclass(frozen=True)
class LoopOptions:
    """The options that apply to every method; `adapt` documents them."""

    lr: LearningRate
    predict: Predict
    steps: int
    autocast: Autocast
    rebalance: float
    rebalance_memory: int

    def __post_init__(self) -> None:
        whole(steps=self.steps)
        one_of("predict", self.predict, "before", "after")
        one_of("autocast", self.autocast, False, *PRECISIONS)
        check_rate(self.lr)


@torch.inference_mode(False)
def adapt(
    model: nn.Module,
    method: str | type[Method] = "dasp",
    *,
    lr: LearningRate = "auto",
    steps: int = 1,
    predict: Predict | None = None,
    autocast: Autocast = False,
    rebalance: float = 0.0,
    rebalance_memory: int = MEMORY,
    log: str | Path | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 50,
    group: "ProcessGroup | Literal['world'] | None" = None,
    seed: int = 0,
    **hyper: Any,
) -> "Adaptation":
    """Make a model adapt while it is used: `tta(inputs)` then infers and adapts.

    The model is put in evaluation mode and frozen except for what the method trains.

    Args:
        model: any model of the contract, see `dasp.core.contract`.
        method: a registered name or a subclass of `Method`.
        lr: learning rate. "auto": chosen at the first update of a stream by its effect on the
            logits, without labels (`dasp.methods.rate`), or the published one if the method has no
            `auto_change`; `out.lr` and `repr(tta)` tell it.
        steps: updates per batch.
        predict: whether the reported prediction is made before or after the update.
        autocast: run forward passes in "bfloat16" (or True), or in "float16", which has no scaling
            of the loss here; losses and scores stay in float32.
        rebalance: from 0 (off) to 1, how strongly the reported predictions are spread evenly over
            the classes; for streams in which all classes are about equally frequent.
        rebalance_memory: how many recent predictions per class it remembers.
        log: a file to which every event is appended as a line of JSON, see `dasp.events`.
        checkpoint: a file to which the state is written; `tta.resume()` continues from it.
        checkpoint_every: the number of batches between two checkpoints.
        group: the ranks that share one stream, "world" for all processes of `torchrun`: each calls
            with its part of every batch, and all learn what one process would learn from the
            joined batch (docs/distributed.md). Only the first writes `log` and `checkpoint`.
        seed: seed of the adapters' initial weights and of the method's own draws.
        **hyper: hyper-parameters of the method, such as `variant="paper"`.
    """
    return_to_source(model)
    ranks = Ranks(group, device_of(model))
    writes = ranks.rank == 0
    with ranks.together():
        built = build_method(method, model, seed, **hyper)
        built.group = ranks
        predict = predict or built.default_predict
        options = LoopOptions(lr, predict, steps, autocast, rebalance, rebalance_memory)
        keeper = None if checkpoint is None else Checkpoint(checkpoint, checkpoint_every, writes)
        recorder = Recorder(built.model.modalities, describe(built), log if writes else None)
        adaptation = Adaptation(built, options, recorder, keeper)
        _join_group(adaptation)
    return adaptation


def _join_group(adaptation: "Adaptation") -> None:
    """Let all ranks begin with the first one's weights; refuse what would not be exact."""
    method, memory, group = adaptation.method, adaptation.memory, adaptation.method.group
    # A subclass is different code: whether it may be shared is for itself to say.
    shared = vars(type(method)).get("sharded", "it does not set `sharded = True` (Method.sharded)")
    if method.batch_norms:
        shared = "it trains BatchNorms, which see the statistics of one rank's samples"
    if group.size > 1 and shared is not True:
        raise ContractError(
            f"{type(method).__name__} cannot share a stream among ranks: {shared}. "
            "Omit group= and give each rank a stream of its own."
        )
    said = describe(method)
    facts = {"method": said["method"], **said["hyper"], "seed": method.seed}
    facts |= asdict(adaptation.options)
    group.meet(lambda: facts | {"the model's weights": memory.digest(memory.capture())}, rows=0)
    own = (buffer for name, buffer in method.named_buffers() if not name.startswith("model."))
    group.share([*memory.weights.values(), *own])


class Adaptation:
    """A model that adapts while it is used: calling it *is* adapting.

    Whatever goes wrong inside a call, the state afterwards is the state before it. Calls from
    several threads are run one after another.
    """

    model: nn.Module
    """The model being adapted."""

    adapters: nn.ModuleDict
    """The modules that the method added, by modality; empty if it tunes the model itself."""

    def __init__(
        self, method: Method, options: LoopOptions, recorder: Recorder, keeper: Checkpoint | None
    ) -> None:
        self.method, self.model, self.adapters = method, method.model, method.adapters
        self.options, self._recorder, self._checkpoint = options, recorder, keeper
        self._loop, self._turns = Loop(method, options), Turns()
        self._clean: tuple[list[Inputs], str] = [], "inputs"  # batches for `selftest`
        self.memory = self._loop.memory
        claim(self)
        method.begin()

    def __repr__(self) -> str:
        method, kind = self.method, type(self.method)
        has_variants = "variant" in hyperparameters(kind)
        name = f"{kind.__name__} ({method.variant})" if has_variants else kind.__name__
        fitted = {None: "", True: "fitted, ", False: "not fitted, "}[method.fitted]
        count = self.memory.batch_index
        seen = "1 batch seen" if count == 1 else f"{count} batches seen"
        rate = f", lr {self.memory.rate}" if self.memory.weights else ""
        return f"<{name} on {name_of(self.model)}, {fitted}{seen}{rate}>"

    def __reduce__(self) -> NoReturn:
        raise StateError(
            "an adaptation cannot be copied or pickled: take tta.state(), adapt another copy of "
            "the model, and load_state() it there."
        )

    def __call__(self, inputs: Inputs) -> Outcome:
        """Infer and adapt on raw inputs {name: (B, ...)}; also inside `torch.no_grad()`.

        Modalities may be missing, but not all of them: omit their names (see `learns_from`).
        """
        return self._call(inputs, "inputs")

    def on_tokens(self, tokens: Tokens) -> Outcome:
        """Infer and adapt on tokens {name: (B, N, D)} already encoded by this model.

        `tta.on_tokens(model.encode(inputs))` equals `tta(inputs)` for methods that leave the
        encoders as they are (`not tta.method.takes_inputs`), so one encoding can serve several.
        """
        return self._call(tokens, "tokens")

    @torch.inference_mode(False)
    @torch.enable_grad()
    def _call(self, batch: Inputs, kind: str) -> Outcome:
        """Run a batch. What it changes and what is counted of it are kept together or not at all,
        whenever an exception or an interrupt comes."""
        frozen, memory, recorder = self._turns.frozen, self.memory, self._recorder
        with self._in_use():
            before, counts = memory.capture(whole=not frozen), recorder.counters.as_dict()
            try:
                outcome = self._loop.run(batch, kind, frozen, before)
                if frozen or outcome.rejected:
                    memory.restore(before)
                recorder.count(outcome, batch, frozen)
            except BaseException as error:
                memory.restore(before)
                recorder.counters.take(counts)
                if isinstance(error, Exception) and not frozen:
                    recorder.error(error)
                raise
            recorder.log_outcome(outcome, batch, memory.batch_index, memory.distances, frozen)
            if self._checkpoint is not None and not frozen:
                self._checkpoint.after_batch(recorder, self._packed)
            return outcome

    @contextmanager
    def _in_use(self, resets: bool = False) -> Iterator[None]:
        """Let nobody else use this adaptation in this block; put its model in evaluation mode."""
        with self._turns.take():
            check_open(self)
            if self._turns.torn and not resets:
                raise StateError(
                    "this process was forked in the middle of a call of its parent, so the state "
                    "is not whole here: call reset() first."
                )
            self.memory.follow_model()
            with evaluating(self.method):
                yield

    def alone(self, inputs: Inputs) -> dict[str, Tensor]:
        """Return the adapted model's logits for each modality by itself: {name: (B, C)}.

        Changes nothing. Beside the joint prediction it tells which sensor a mistake comes from.
        """
        return self._alone(inputs, "inputs")

    def alone_on_tokens(self, tokens: Tokens) -> dict[str, Tensor]:
        """Return what `alone` does, from tokens {name: (B, N, D)} already encoded."""
        return self._alone(tokens, "tokens")

    def _alone(self, batch: Inputs, kind: str) -> dict[str, Tensor]:
        with self._in_use():
            before = self.memory.capture(whole=False)
            try:
                return self._loop.run_alone(batch, kind, self._turns.frozen)
            finally:
                self.memory.restore(before)

    def frozen(self) -> AbstractContextManager[None]:
        """Let this thread's calls in this block infer with the adapted state, changing nothing."""
        return self._turns.freeze()

    def reset(self) -> None:
        """Return to the source state, bit for bit: weights, optimizer, averages, draws."""
        with self._in_use(resets=True):
            fitted = self.method.fitted
            self.memory.restore(self.source)
            self._turns.torn = False
            self._recorder.event("reset")
        if fitted and not self.method.fitted:
            warnings.warn(
                "reset() returned to the source state, which is not fitted: the fitted state that "
                "was loaded is gone. Load it again, or call fit().",
                RuntimeWarning,
                stacklevel=2,
            )

    def fit(self, source: Iterable[Inputs]) -> None:
        """Let the method learn from clean source batches; what it learns survives `reset`."""
        self._fit(source, "inputs")

    def fit_on_tokens(self, source: Iterable[Tokens]) -> None:
        """Fit as `fit` does, on batches of tokens {name: (B, N, D)} already encoded."""
        self._fit(source, "tokens")

    def selftest(self) -> SelfTest:
        """Tell whether diagnosis and treatment can be trusted on this model; warn if they cannot.

        The clean samples of the last `fit` (128 of them are kept for this) are damaged in five
        generic ways, each modality by itself and then all at once, as raw inputs and as tokens:
        which would be named, which missed, for which would another modality be blamed, and how many
        of the predictions for the same samples without damage does treatment bring back? Changes
        nothing.
        """
        if not isinstance(getattr(self.method, "diagnoser", None), Diagnoser):
            raise ContractError(
                f"{type(self.method).__name__} has no diagnosis that learns from clean samples, "
                "which selftest() is about."
            )
        with self._in_use():
            before = self.memory.capture()
            try:
                self.memory.restore(self.source)
                with apart(self.method):
                    found = selftest(self.method, *self._clean)
            finally:
                self.memory.restore(before)
        if found.warning:
            warnings.warn(f"selftest: {found.warning}", stacklevel=2)
        return found

    def _fit(self, source: Iterable[Inputs], kind: str) -> None:
        group, method = self.method.group, self.method
        self._clean = [], kind
        with torch.inference_mode(False), group.together(), self._in_use():
            self.memory.restore(self.source)
            batches = map(self._kept, group.join(clean_batches(source, method, kind)))
            if kind == "inputs" and not method.tunes_encoder:
                batches = map(torch.no_grad()(method.encode), batches)
            try:
                with apart(method):
                    method.fit(batches)
                group.settle()
            except BaseException:
                self.memory.restore(self.source)
                self._clean = [], kind
                raise
            self.memory.forget_source()
            self._recorder.event("fit")

    def _kept(self, batch: Inputs) -> Inputs:
        """Keep a clean batch for `selftest`, if the method has a diagnosis to test."""
        kept = self._clean[0]
        room = KEPT - sum(len(next(iter(part.values()))) for part in kept)
        if room > 0 and isinstance(getattr(self.method, "diagnoser", None), Diagnoser):
            kept.append({name: value[:room].detach() for name, value in batch.items()})
        return batch

    @property
    def source(self) -> Snapshot:
        """The state that `reset` returns to: the one before the first batch.

        It is captured when first needed, so initial weights may be set until then:
        `tta.adapters["audio"].stable.down.weight.data.copy_(mine)`.
        """
        return self.memory.source()

    @property
    def trainable(self) -> Trainable:
        """What is trained, and how much; print it for a report."""
        shapes = {name: tuple(weight.shape) for name, weight in self.memory.weights.items()}
        count = sum(weight.numel() for weight in self.memory.weights.values())
        return Trainable(shapes, count, sum(p.numel() for p in self.method.parameters()))

    @property
    def counters(self) -> dict[str, Any]:
        """A copy of the counters of this run; `dasp.service` documents them."""
        with self._turns.take(nested=True):
            return self._recorder.counters.as_dict()

    def metrics(self) -> str:
        """Return counters, last scores and adapter norms in Prometheus' text format."""
        with self._turns.take(nested=True):
            return self._recorder.metrics(self.memory.batch_index, self.memory.distances())

    def state(self) -> State:
        """Return the adapted state (not the model) as a plain dict, see `dasp.methods.state`."""
        with self._in_use():
            return self._packed()

    def save(self, path: str | Path) -> None:
        """Write `state()` to one safetensors file, atomically; it is on the disk on return."""
        with self._in_use():
            write_state(path, self._packed())
            self._recorder.event("save", path)

    def load_state(self, state: State) -> None:
        """Take over a state of the same model, method and hyper-parameters.

        Any other is refused and changes nothing. A given lr, steps and predict stay; an automatic
        lr is taken over if the state has one. The counters describe this run and stay (`resume`
        takes them over too).
        """
        self._load(state, None)

    def load(self, path: str | Path) -> None:
        """Take over a state from a file of `save` or a checkpoint, as `load_state` does."""
        self._load(read_state(path), path)

    def resume(self, path: str | Path | None = None) -> int:
        """Continue from the checkpoint; return the number of batches already processed (0 if none).

        Skip that many batches of the same stream: what follows equals an uninterrupted run. With
        `path`, continue from that file, which a checkpoint or `save` has written.
        """
        if path is None:
            if self._checkpoint is None:
                raise OptionError('resume() needs a checkpoint: adapt(…, checkpoint="a path").')
            path = self._checkpoint.path
            if not path.exists():
                return 0
        self._load(read_state(path), path, resumes=True)
        batches = self._recorder.counters.totals["batches"]
        if self._checkpoint is not None:
            self._checkpoint.written_at = batches
        return batches

    def _load(self, state: State, path: str | Path | None, resumes: bool = False) -> None:
        with self._in_use():
            snapshot = self.memory.unpack(state, str(path or "this state"))
            counters, then = self._recorder.counters, state.get("counters")
            if resumes and not counters.fits(then):
                raise StateError(f"{path}: its counters are damaged ({str(then)[:60]}).")
            self.memory.restore(snapshot)
            if resumes:
                counters.take(state["counters"])
            self._recorder.event("resume" if resumes else "load", path)

    def _packed(self) -> State:
        return self.memory.pack(self._recorder.counters.as_dict())


class Loop:
    """A method, its state, and how a batch changes that state."""

    def __init__(self, method: Method, options: LoopOptions) -> None:
        self.method, self.options = method, options
        self._rebalancer = build_rebalancer(method, options.rebalance, options.rebalance_memory)
        method.eval()
        method.requires_grad_(False)
        for parameter in method.trainable():
            parameter.requires_grad_(True)
        method.batch_norms = trained_batch_norms(method.model)
        self.memory = Memory(method, options.lr)

    def run(self, batch: Inputs, kind: str, frozen: bool, before: Snapshot) -> Outcome:
        """Run a batch of "inputs" or "tokens"; `before` is the present state.

        If another rank fails, this rank's samples are predicted and nothing is learned.
        """
        group, self.method.frozen = self.method.group, frozen
        try:
            with group.together():
                outcome = self._run(checked(batch, self.method, kind), kind, frozen, before)
                found = _by_sample(outcome.diagnosis, group.own)
                own = replace(outcome, logits=group.own(outcome.logits), diagnosis=found)
                return self._explained(own)
        except PeerError as error:
            self.memory.restore(before)
            with apart(self.method):
                outcome = self._run(batch, kind, True, before)
                return self._explained(replace(outcome, rejected=str(error)))
        finally:
            self.method.frozen, self.method.follows = False, frozenset()
            self.method.inputs = None

    def _explained(self, outcome: Outcome) -> Outcome:
        """Say in `skipped` why a call learned nothing, if it did not."""
        if outcome.updated:
            return outcome
        why = outcome.rejected or outcome.rollback or outcome.skipped
        return replace(outcome, skipped=why or f"{type(self.method).__name__} gave no reason")

    def _run(self, batch: Inputs, kind: str, frozen: bool, before: Snapshot) -> Outcome:
        """Infer on a batch and, unless `frozen`, learn from it; return what all ranks' samples got.

        A batch with samples that hold NaN or Inf, or that the model fails on, is rejected: those
        get NaN logits, the others are predicted without them, and nothing is learned.
        """
        self._meet(batch, f"{kind}, frozen" if frozen else kind)
        own = finite_rows(batch)
        rows = self.method.group.gather(own)
        why = not_finite(batch, own, rows) if len(rows) else "no rank has samples"
        if len(rows) and rows.all():
            prepared = self._prepared(batch, kind)
            outcome = self._infer(prepared) if frozen else self._learn(prepared, before)
            rows = predicted_rows(outcome.logits)
            if rows.all() or outcome.rollback:
                return outcome
            own = self.method.group.own(rows)
            why = OVERFLOW + which(own, rows)
        shape = len(rows), self.method.model.num_classes
        logits, diagnosis = torch.full(shape, torch.nan, device=rows.device), None
        if rows.any():
            usable = {name: value[own] for name, value in batch.items()}
            found = self._infer(self._prepared(usable, kind))
            found.logits[~predicted_rows(found.logits)] = torch.nan
            logits[rows] = found.logits
            where = rows.cpu()
            none = torch.zeros_like(where)
            diagnosis = _by_sample(found.diagnosis, lambda own: none.masked_scatter(where, own))
        return Outcome(logits, diagnosis, rejected=why)

    def _meet(self, batch: Inputs, kind: str) -> None:
        """Begin a call, in which all ranks must be given the same and be in the same state."""
        facts = {"the kind of the call": kind, "the order of modalities": list(batch)}
        memory = self.memory
        self.method.group.meet(
            lambda: facts | {"batches learned": memory.batch_index, "weights": memory.checksum()},
            len(next(iter(batch.values()))),
        )

    def _prepared(self, batch: Inputs, kind: str) -> Tokens:
        """Return the batch as the method's `step` receives it: encoded, or raw."""
        self.method.inputs = None if kind == "tokens" else batch
        if kind == "tokens" or self.method.tunes_encoder:
            return batch
        with torch.no_grad(), self._precision():
            return self.method.encode(batch)

    def _infer(self, batch: Tokens) -> Outcome:
        """Infer on a prepared batch with the adapted state, changing nothing."""
        prediction = self._predict(batch)
        logits = self._rebalanced(prediction.logits)
        return Outcome(logits, prediction.diagnosis, skipped="called inside frozen()")

    def _learn(self, batch: Tokens, before: Snapshot) -> Outcome:
        """Infer on a prepared batch and adapt; if the batch is rejected, nothing has changed."""
        memory, method = self.memory, self.method
        memory.source(before)
        outcome = self._adapt(batch, before)
        if outcome.rejected:
            memory.restore(before)
        else:
            method.group.settle()
            memory.batch_index += 1
        return outcome

    def _first_step(self, batch: Tokens, before: Snapshot) -> Step:
        """Begin a batch; if it is the first that teaches something, choose an automatic rate.

        The rate is the one at which this step has the wanted effect. The trials leave no trace: a
        run equals one that was given the chosen rate.
        """
        memory, method, step = self.memory, self.method, self._begun(batch)
        undecided = memory.rate.value is None and step.loss is not None and not step.rollback
        if not undecided or not predicted_rows(step.logits).all():
            return step
        lr = method.default_lr
        # In full precision: autocast, in which tokens were encoded, would hide small changes.
        like = next(method.model.parameters(), torch.empty(0)).dtype
        exact = {n: v.to(like) if v.is_floating_point() else v for n, v in batch.items()}
        for _ in range(TRIALS):
            method.follows = frozenset()
            with torch.no_grad():
                old = method.forward(exact).logits
                failed = memory.descend(step, lr)
                change = relative_change(old, method.forward(exact).logits)
            lr = memory.rate.next_trial(lr, math.nan if failed else change)
            memory.restore(before)
            step = self._begun(batch)
        memory.rate.choose(lr)
        return step

    def _begun(self, batch: Tokens) -> Step:
        """Return the first step of a batch; what it draws depends on the batch's number alone."""
        method = self.method
        method.generator.manual_seed(batch_seed(method.seed, self.memory.batch_index))
        method.follow_batch()
        return self._step(batch)

    def _adapt(self, batch: Tokens, before: Snapshot) -> Outcome:
        """Take the steps of one batch, and report the prediction that was asked for."""
        memory = self.memory
        first = step = self._first_step(batch, before)
        updated = restart = False
        if not (rows := predicted_rows(first.logits)).all():
            return self._outcome(first, first.logits, rejected=OVERFLOW + which(rows))
        left, lr = self.options.steps, memory.rate.value
        while True:
            if step.rollback is not None:
                self.method.roll_back()
                memory.set_moments({})  # they belong to weights that are gone
                return self._outcome(step, step.logits, rollback=step.rollback)
            if step.loss is None or lr is None:
                break
            if why := memory.descend(step, lr):
                return self._outcome(first, first.logits, rejected=why)
            with torch.no_grad():
                self.method.after_update()
            updated, restart = True, restart or step.restart
            left -= not step.more
            if not left:
                break
            step = self._step(batch)
        logits = first.logits
        if self.options.predict == "after" and updated:
            logits = self._predict(batch).logits
            if not predicted_rows(logits).all():
                why = "the update made a prediction that is not finite: lower lr"
                return self._outcome(first, first.logits, rejected=why)
        if not restart:
            return self._outcome(first, logits, updated)
        why = f"{type(self.method).__name__} asked to start over from the source state"
        outcome = self._outcome(first, logits, updated, rollback=why)
        memory.restore(memory.source(), keep_index=True)
        return outcome

    def _step(self, batch: Tokens) -> Step:
        with self._precision():
            if learns_from(self.method, batch):
                return self.method.step(batch)
        missing = ", ".join(n for n in self.method.model.modalities if n not in batch)
        why = f"{type(self.method).__name__} learns only from all modalities; {missing} is missing"
        return Step(self._predict(batch).logits, skipped=why)

    def _outcome(self, step: Step, logits: Tensor, updated: bool = False, **why: str) -> Outcome:
        """Return an outcome, and let later batches be rebalanced by its logits, too."""
        shown = self._rebalanced(logits).detach()
        if self._rebalancer is not None:
            self._rebalancer.remember(logits)
        loss = None if step.loss is None else float(step.loss.detach())
        lr = self.memory.rate.value if updated else None
        return Outcome(shown, step.diagnosis, updated, loss, lr=lr, skipped=step.skipped, **why)

    def run_alone(self, batch: Inputs, kind: str, frozen: bool) -> dict[str, Tensor]:
        """Check a batch and predict from each of its modalities by itself: {name: (B, C)}."""
        method, self.method.frozen = self.method, frozen
        try:
            with method.group.together():
                batch = checked(batch, method, kind)
                self._meet(batch, f"{kind} alone")
                tokens = self._prepared(batch, kind)
                with torch.no_grad(), self._precision(), method.predicting():
                    owner = type(method) if learns_from(method, tokens) else Method
                    adapted = owner.adapted_tokens(method, tokens)
                    return {name: method.fuse({name: own}).logits for name, own in adapted.items()}
        finally:
            method.frozen, method.inputs = False, None

    @torch.no_grad()
    def _predict(self, batch: Tokens) -> Prediction:
        with self._precision():
            if learns_from(self.method, batch):
                return self.method.predict(batch)
            with self.method.predicting():
                logits = self.method.fuse(Method.adapted_tokens(self.method, batch)).logits
            return Prediction(self.method.group.gather(logits))

    def _rebalanced(self, logits: Tensor) -> Tensor:
        return logits if self._rebalancer is None else self._rebalancer(logits)

    def _precision(self) -> torch.autocast:
        kind = device_of(self.method.model).type
        chosen = self.options.autocast
        return torch.autocast(kind, PRECISIONS.get(chosen, torch.bfloat16), enabled=bool(chosen))


def learns_from(method: Method, batch: Tokens) -> bool:
    """Tell whether a method learns from a batch, given the modalities that it lacks.

    A method that treats modalities alike runs as usual on those present: weights of an absent one
    get no gradient and stay. A method that weighs modalities against each other learns nothing:
    one for exactly two of them, one that trains how the fusion attends, and one that says so
    (`Method.learns_from_part`). The current weights (an averaged teacher's, if that predicts) then
    predict, without what the method put around them.
    """
    if len(batch) == len(method.model.modalities):
        return True
    weighs = method.exactly_two_modalities or HasFusionQkv in method.needs
    return method.learns_from_part and not weighs


def _by_sample(diagnosis: Diagnosis | None, change: Callable[[Tensor], Tensor]) -> Diagnosis | None:
    """Change what a diagnosis says of each sample, if it does."""
    if diagnosis is None or not diagnosis.samples:
        return diagnosis
    found = {n: tuple(change(torch.tensor(own)).tolist()) for n, own in diagnosis.samples.items()}
    return replace(diagnosis, samples=found)
