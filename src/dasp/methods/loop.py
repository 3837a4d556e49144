"""The update loop, written once for all methods: check a batch, infer, adapt, guard, restore.

`dasp.adapt` returns an `Adaptation`, the handle that users call. It holds a lock, counters and the
event log; the batch itself goes through `Loop`, which calls the method.
"""

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from weakref import WeakSet, finalize, ref

import torch
from torch import Tensor, nn

from dasp.core.contract import HasFusionQkv, check_batch, check_placement
from dasp.core.errors import ContractError, InputError, OptionError, StateError
from dasp.core.seeding import batch_seed
from dasp.core.types import Inputs, Outcome, Prediction, Step, Tokens, Trainable
from dasp.methods.base import Method, Predict, build_method, device_of, one_of, whole
from dasp.methods.distributed import ALONE, PeerError, Ranks
from dasp.methods.losses import predicted_rows
from dasp.methods.rebalance import MEMORY, build_rebalancer
from dasp.methods.state import (
    Checkpoint,
    Memory,
    Snapshot,
    State,
    describe,
    read_state,
    write_state,
)
from dasp.service.events import Recorder

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

LOOP_VERSION = 1
"""Results are stored under this number: increase it when an edit of the loop, or of what several
methods share, changes numbers."""

OVERFLOW = "the model's prediction is NaN or Inf, "


@dataclass(frozen=True)
class LoopOptions:
    """The options that apply to every method; `adapt` documents them."""

    lr: float
    predict: Predict
    steps: int = 1
    autocast: bool = False
    rebalance: float = 0.0
    rebalance_memory: int = MEMORY

    def __post_init__(self) -> None:
        whole(steps=self.steps)
        one_of("predict", self.predict, "before", "after")
        one_of("autocast", self.autocast, True, False)
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
        lr: learning rate; None for the method's default.
        steps: updates per batch.
        predict: whether the reported prediction is made before or after the update.
        autocast: run forward passes in bfloat16; losses and scores stay in float32.
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
    _return_to_source(model)
    company = Ranks(group, device_of(model))
    writes = company.rank == 0
    with company.together():
        built = build_method(method, model, seed, **hyper)
        built.group = company
        lr, predict = built.default_lr if lr is None else lr, predict or built.default_predict
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
    if group.size > 1 and shared is not True:
        raise ContractError(
            f"{type(method).__name__} cannot share a stream among ranks: {shared}. "
            "Omit group= and give each rank a stream of its own."
        )
    said = describe(method)
    facts = {"method": said["method"], **said["hyper"], "seed": method.seed}
    facts |= asdict(adaptation.options)
    group.meet(lambda: facts | {"the model's weights": memory.digest(memory.capture())}, rows=0)
    group.share([*memory.weights.values(), *memory.buffers().values()])


class Adaptation:
    """A model that adapts while it is used: calling it *is* adapting.

    Whatever goes wrong inside a call (a bad batch, an exception raised by the model), the state
    afterwards is the state before it. Calls from several threads are run one after another.
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
        self._loop = Loop(method, options)
        self.memory = self._loop.memory
        self._lock, self._owner, self._process = threading.Lock(), 0, os.getpid()
        self._thread, self._torn = threading.local(), False
        _claim_model(self)
        method.begin()

    def __repr__(self) -> str:
        names = f"{type(self.method).__name__} on {type(self.model).__name__}"
        return f"<{names}, {self.memory.batch_index} batches seen, lr {self.options.lr:g}>"

    def __reduce__(self) -> NoReturn:
        raise StateError(
            "an adaptation cannot be copied or pickled: take tta.state(), adapt another copy of "
            "the model, and load_state() it there."
        )

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
        with self._alone(nested=True):
            return self._recorder.counters.as_dict()

    def metrics(self) -> str:
        """Return counters, last scores and adapter norms in Prometheus' text format."""
        with self._alone(nested=True):
            return self._recorder.metrics(self.memory.batch_index, self._loop.distances())

    def __call__(self, inputs: Inputs) -> Outcome:
        """Infer and adapt on raw inputs {name: (B, ...)}; also inside `torch.no_grad()`.

        Modalities may be missing, but not all of them: omit their names (see `learns_from`).
        """
        return self._recorded(inputs, "inputs")

    def on_tokens(self, tokens: Tokens) -> Outcome:
        """Infer and adapt on tokens {name: (B, N, D)} already encoded by this model."""
        return self._recorded(tokens, "tokens")

    def alone(self, inputs: Inputs) -> dict[str, Tensor]:
        """Return the adapted model's logits for each modality by itself: {name: (B, C)}.

        Changes nothing. Beside the joint prediction it tells which sensor a mistake comes from.
        """
        with self._in_use(), self._unchanged():
            return self._loop.run_alone(inputs, "inputs")

    def alone_on_tokens(self, tokens: Tokens) -> dict[str, Tensor]:
        """Return what `alone` does, from tokens {name: (B, N, D)} already encoded."""
        with self._in_use(), self._unchanged():
            return self._loop.run_alone(tokens, "tokens")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let this thread's calls in this block infer with the adapted state, changing nothing."""
        previous, self._thread.frozen = self._is_frozen(), True
        try:
            yield
        finally:
            self._thread.frozen = previous

    def reset(self) -> None:
        """Return to the source state, bit for bit: weights, optimizer, averages, draws."""
        with self._in_use(torn=True):
            self.memory.restore(self.source)
            self._torn = False
            self._recorder.event("reset")

    def fit(self, source: Iterable[Inputs]) -> None:
        """Let the method learn from clean source batches; what it learns survives `reset`."""
        group = self.method.group
        with group.together(), self._in_use():
            self.memory.restore(self.source)
            batches = group.join(_clean_batches(source, self.method))
            try:
                with _apart(self.method):
                    self.method.fit(batches)
                group.settle()
            except BaseException:
                self.memory.restore(self.source)
                raise
            self.memory.forget_source()
            self._recorder.event("fit")

    def state(self) -> State:
        """Return the adapted state (not the model) as a plain dict, see `dasp.methods.state`."""
        with self._in_use():
            return self._packed()

    def load_state(self, state: State) -> None:
        """Take over a state of the same model, method and hyper-parameters.

        Any other is refused and changes nothing. lr, steps and predict are not part of a state;
        the counters describe this run and stay (`resume` takes them over too).
        """
        self._load(state, "this state")

    def save(self, path: str | Path) -> None:
        """Write `state()` to one safetensors file, atomically; it is on the disk on return."""
        with self._in_use():
            write_state(path, self._packed())
            self._recorder.event("save", path)

    def load(self, path: str | Path) -> None:
        """Take over a state from a file of `save` or a checkpoint, as `load_state` does."""
        self._load(read_state(path), str(path), path)

    def resume(self) -> int:
        """Continue from the checkpoint; return the number of batches already processed (0 if none).

        Skip that many batches of the same stream: what follows equals an uninterrupted run.
        """
        if self._checkpoint is None:
            raise OptionError('resume() needs a checkpoint: adapt(…, checkpoint="a path").')
        path, counters = self._checkpoint.path, self._recorder.counters
        if not path.exists():
            return 0
        with self._in_use():
            state = read_state(path)
            snapshot, then = self.memory.unpack(state, str(path)), state.get("counters")
            if not counters.fits(then):
                raise StateError(f"{path}: its counters are damaged ({str(then)[:60]}).")
            self.memory.restore(snapshot)
            counters.take(state["counters"])
            self._recorder.event("resume", path)
            self._checkpoint.written_at = counters.totals["batches"]
            return self._checkpoint.written_at

    def _load(self, state: State, where: str, path: str | Path | None = None) -> None:
        with self._in_use():
            self.memory.restore(self.memory.unpack(state, where))
            self._recorder.event("load", path)

    @torch.inference_mode(False)
    @torch.enable_grad()
    def _recorded(self, batch: Inputs, kind: str) -> Outcome:
        """Run a batch. What it changes and what is counted of it are kept together or not at all,
        whenever an exception or an interrupt comes."""
        frozen, recorder = self._is_frozen(), self._recorder
        with self._in_use():
            before, counts = self.memory.capture(whole=not frozen), recorder.counters.as_dict()
            try:
                outcome = self._loop.run(batch, kind, frozen, before)
                if frozen or outcome.rejected:
                    self.memory.restore(before)
                recorder.count(outcome, batch, frozen)
            except BaseException as error:
                self.memory.restore(before)
                recorder.counters.take(counts)
                if isinstance(error, Exception) and not frozen:
                    recorder.error(error)
                raise
            recorder.log_outcome(
                outcome, batch, self.memory.batch_index, self._loop.distances, frozen
            )
            if self._checkpoint is not None and not frozen:
                self._checkpoint.after_batch(recorder, self._packed)
            return outcome

    def _packed(self) -> State:
        return self.memory.pack(self._recorder.counters.as_dict())

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Undo what the model does to its own buffers in this block."""
        before = self.memory.capture(whole=False)
        try:
            yield
        finally:
            self.memory.restore(before)

    @contextmanager
    def _in_use(self, torn: bool = False) -> Iterator[None]:
        """Let nobody else use this adaptation in this block; put its model in evaluation mode."""
        with self._alone():
            if self not in _LIVE:
                raise StateError(
                    "this adaptation was closed when its model was adapted again: "
                    "to run several at once, adapt copy.deepcopy(model) for each."
                )
            if self._torn and not torn:
                raise StateError(
                    "this process was forked in the middle of a call of its parent, so the state "
                    "is not whole here: call reset() first."
                )
            training = [module for module in self.method.modules() if module.training]
            for module in training:
                module.training = False
            try:
                yield
            finally:
                for module in training:
                    module.training = True

    @contextmanager
    def _alone(self, nested: bool = False) -> Iterator[None]:
        """Wait for other threads' calls; refuse a call in the middle of this thread's, if not
        `nested`: a signal handler or the model itself would see half of a step."""
        if os.getpid() != self._process:  # a child: its parent's lock is nobody's here
            self._torn = self._lock.locked()
            self._lock, self._owner, self._process = threading.Lock(), 0, os.getpid()
        if self._owner == threading.get_ident() and self._lock.locked():
            if not nested:
                raise StateError(
                    "called in the middle of a step, by a signal handler or by the model itself, "
                    "where the state is not whole: call it when tta(inputs) has returned."
                )
            yield
            return
        with self._lock:
            self._owner = threading.get_ident()
            yield

    def _is_frozen(self) -> bool:
        return getattr(self._thread, "frozen", False)


_LIVE: WeakSet[Adaptation] = WeakSet()
_CLAIMING = threading.Lock()


def _claim_model(adaptation: Adaptation) -> None:
    """Make an adaptation a user of its model, and close those that it would disturb.

    Methods that leave the model's own weights alone (Source, DASP, TSA) may share it. If one of
    them trains those weights, adapting the model again returns it to its source state and closes
    the earlier adaptations: their next call raises an error instead of giving a wrong number.
    """
    own = _model_weights(adaptation)
    with _CLAIMING:
        others = [user for user in _LIVE if not own.isdisjoint(_model_weights(user))]
        changes = [user for user in others if _trains_model(user)]
        for user in changes:
            user.reset()
        if changes or _trains_model(adaptation):
            _LIVE.difference_update(others)
        _LIVE.add(adaptation)
    if _trains_model(adaptation):
        finalize(adaptation, _leave, adaptation.memory).atexit = False


_LEFT: dict[int, tuple[ref[nn.Parameter], int, Tensor]] = {}  # id: weight, its version, its source


def _leave(memory: Memory) -> None:
    """Remember the source of what an adaptation that nobody holds any more has trained."""
    source = memory.source().tensors
    for name, weight in memory.weights.items():
        if name.startswith("model."):
            place = id(weight)
            gone = ref(weight, lambda _, place=place: _LEFT.pop(place, None))  # type: ignore[misc]
            _LEFT[place] = gone, weight._version, source[f"weight/{name}"]


@torch.no_grad()
def _return_to_source(model: nn.Module) -> None:
    """Undo what forgotten adaptations did to a model; weights changed since are the user's own."""
    for weight in model.parameters() if isinstance(model, nn.Module) else ():
        left, version, source = _LEFT.pop(id(weight), (None, 0, weight))
        if left is not None and left() is weight and weight._version == version:
            weight.copy_(source)


def _model_weights(user: Adaptation) -> set[int]:
    return set(map(id, user.model.parameters()))  # models with faster encoders share them


def _trains_model(user: Adaptation) -> bool:
    return not _model_weights(user).isdisjoint(map(id, user.memory.weights.values()))


@contextmanager
def _apart(method: Method) -> Iterator[None]:
    """Let a method see only this rank's samples within this block."""
    company, method.group = method.group, ALONE
    try:
        yield
    finally:
        method.group = company


class Loop:
    """A method, its state, and how a batch changes that state."""

    def __init__(self, method: Method, options: LoopOptions) -> None:
        self.method, self.options = method, options
        self._rebalancer = build_rebalancer(method, options.rebalance, options.rebalance_memory)
        method.eval()
        method.requires_grad_(False)
        for parameter in method.trainable():
            parameter.requires_grad_(True)
        self.memory = Memory(method, options.lr)

    def run(self, batch: Inputs, kind: str, frozen: bool, before: Snapshot) -> Outcome:
        """Check a batch of "inputs" or "tokens" and run it; `before` is the present state.

        If another rank fails, this rank's samples are predicted and nothing is learned.
        """
        group, self.method.frozen = self.method.group, frozen
        try:
            with group.together():
                outcome = self._run(_checked(batch, self.method, kind), kind, frozen, before)
                return replace(outcome, logits=group.own(outcome.logits))
        except PeerError as error:
            self.memory.restore(before)
            with _apart(self.method):
                outcome = self._run(batch, kind, True, before)
            return replace(outcome, rejected=str(error))
        finally:
            self.method.frozen = False

    def _run(self, batch: Inputs, kind: str, frozen: bool, before: Snapshot) -> Outcome:
        """Infer on a batch and, unless `frozen`, learn from it; return what all ranks' samples got.

        A batch with samples that hold NaN or Inf, or that the model fails on, is rejected: those
        get NaN logits, the others are predicted without them, and nothing is learned.
        """
        self._meet(batch, f"{kind}, frozen" if frozen else kind)
        own = finite_rows(batch)
        rows = self.method.group.gather(own)
        why = _spoilt(batch, own, rows) if len(rows) else "no rank has samples"
        if len(rows) and rows.all():
            batch, kind = self._prepared(batch, kind), "tokens"
            outcome = self._infer(batch) if frozen else self._learn(batch, before)
            rows = predicted_rows(outcome.logits)
            if rows.all() or outcome.rollback:
                return outcome
            own = self.method.group.own(rows)
            why = OVERFLOW + _counted(own, rows)
        shape = len(rows), self.method.model.num_classes
        logits, diagnosis = torch.full(shape, torch.nan, device=rows.device), None
        if rows.any():
            usable = {name: value[own] for name, value in batch.items()}
            found = self._infer(self._prepared(usable, kind))
            found.logits[~predicted_rows(found.logits)] = torch.nan
            logits[rows], diagnosis = found.logits, found.diagnosis
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
        if kind == "tokens" or self.method.tunes_encoder:
            return batch
        with torch.no_grad(), self._precision():
            return self.method.encode(batch)

    def _learn(self, batch: Tokens, before: Snapshot) -> Outcome:
        """Infer on a prepared batch and adapt; if the batch is rejected, nothing has changed."""
        memory, method = self.memory, self.method
        memory.source(before)
        method.generator.manual_seed(batch_seed(method.seed, memory.batch_index))
        outcome = self._adapt(batch)
        if outcome.rejected:
            memory.restore(before)
        else:
            method.group.settle()
            memory.batch_index += 1
        return outcome

    def _adapt(self, batch: Tokens) -> Outcome:
        first: Step | None = None
        updated, restart = False, False
        left = self.options.steps
        while left:
            with self._precision():
                learns = learns_from(self.method, batch)
                step = self.method.step(batch) if learns else Step(self._predict(batch).logits)
            if first is None:
                first = step
                if not (rows := predicted_rows(step.logits)).all():
                    return self._outcome(first, first.logits, rejected=OVERFLOW + _counted(rows))
            if step.rollback is not None:
                self.method.roll_back()
                self.memory.forget_moments()
                return self._outcome(step, self._predict(batch).logits, rollback=step.rollback)
            if step.loss is None:
                break
            refusal = self.memory.descend(step)
            if refusal:
                return self._outcome(first, first.logits, rejected=refusal)
            with torch.no_grad():
                self.method.after_update()
            updated, restart = True, restart or step.restart
            left -= not step.more
        assert first is not None
        return self._finished(batch, first, updated, restart)

    def _finished(self, batch: Tokens, first: Step, updated: bool, restart: bool) -> Outcome:
        """Report the requested prediction, and restart from the source state if asked to."""
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
        self.memory.restore(self.memory.source(), keep_index=True)
        return outcome

    def _outcome(self, step: Step, logits: Tensor, updated: bool = False, **why: str) -> Outcome:
        """Return an outcome, and let later batches be rebalanced by its logits, too."""
        shown = self._rebalanced(logits).detach()
        if self._rebalancer is not None:
            self._rebalancer.remember(logits)
        loss = None if step.loss is None else float(step.loss.detach())
        return Outcome(shown, step.diagnosis, updated, loss, **why)

    def _infer(self, batch: Tokens) -> Outcome:
        """Infer on a prepared batch with the adapted state, changing nothing."""
        prediction = self._predict(batch)
        return Outcome(self._rebalanced(prediction.logits), prediction.diagnosis)

    def run_alone(self, batch: Inputs, kind: str) -> dict[str, Tensor]:
        """Check a batch and predict from each of its modalities by itself: {name: (B, C)}."""
        with self.method.group.together():
            batch = _checked(batch, self.method, kind)
            self._meet(batch, f"{kind} alone")
            tokens = self._prepared(batch, kind)
            with torch.no_grad(), self._precision():
                adapted = self._adapted_tokens(tokens)
                return {name: self.method.fuse({name: own}).logits for name, own in adapted.items()}

    @torch.no_grad()
    def distances(self) -> dict[str, float]:
        """Return how far the weights are from their source, ‖θ − θ₀‖, by the adapters' modality.

        Weights that belong to no modality's adapter count as "shared".
        """
        squares: dict[str, list[Tensor]] = {}
        source = self.memory.source().tensors
        for path, weight in self.memory.weights.items():
            kind, _, rest = path.partition(".")
            owner = rest.split(".")[0] if kind == "adapters" else "shared"
            change = weight.float() - source[f"weight/{path}"].float()
            squares.setdefault(owner, []).append(change.square().sum())
        return {owner: float(torch.stack(own).sum().sqrt()) for owner, own in squares.items()}

    @torch.no_grad()
    def _predict(self, batch: Tokens) -> Prediction:
        with self._precision():
            if learns_from(self.method, batch):
                return self.method.predict(batch)
            logits = self.method.fuse(self._adapted_tokens(batch)).logits
            return Prediction(self.method.group.gather(logits))

    def _adapted_tokens(self, batch: Tokens) -> dict[str, Tensor]:
        if learns_from(self.method, batch):
            return self.method.adapted_tokens(batch)
        return Method.adapted_tokens(self.method, batch)

    def _rebalanced(self, logits: Tensor) -> Tensor:
        return logits if self._rebalancer is None else self._rebalancer(logits)

    def _precision(self) -> torch.autocast:
        kind = device_of(self.method.model).type
        return torch.autocast(kind, dtype=torch.bfloat16, enabled=self.options.autocast)


def learns_from(method: Method, batch: Tokens) -> bool:
    """Tell whether a method learns from a batch, given the modalities that it lacks.

    A method that treats modalities alike runs as usual on those present: weights of an absent one
    get no gradient, so the optimizer does not move them. A method that weighs modalities against
    each other learns nothing from such a batch: one for exactly two of them, one that trains how
    the fusion attends, and one that says so (`Method.learns_from_part`). The prediction is then
    made with the model's current weights, without what the method put around them.
    """
    if len(batch) == len(method.model.modalities):
        return True
    weighs = method.exactly_two_modalities or HasFusionQkv in method.needs
    return method.learns_from_part and not weighs


def _checked(batch: Inputs, method: Method, kind: str) -> dict[str, Tensor]:
    """Refuse what the method cannot take as "inputs" or "tokens"; return a batch that it can."""
    if kind == "tokens" and method.tunes_encoder:
        raise ContractError(f"{type(method).__name__} tunes the encoder: call it with raw inputs.")
    check_batch(batch, method.model, kind, part=True, no_samples=method.group.size > 1)
    check_placement(batch, method.model)
    # A tensor created in inference mode cannot take part in training, its copy can; and nothing
    # may reach the caller's own graph.
    return {name: v.clone() if v.is_inference() else v.detach() for name, v in batch.items()}


def _clean_batches(source: Iterable[Inputs], method: Method) -> Iterator[Inputs]:
    """Yield the batches given to `fit`; refuse what would spoil everything that follows."""
    if isinstance(source, Mapping) or not isinstance(source, Iterable):
        raise InputError(
            f"fit() takes batches such as [{{name: tensor}}, …], not {type(source).__name__}: "
            "put a single batch into a list."
        )
    for batch in source:
        if not isinstance(batch, Mapping):
            raise InputError(
                f"a batch of fit() is a dict of tensors by modality, not {type(batch).__name__}: "
                "leave the labels out."
            )
        check_batch(batch, method.model)
        check_placement(batch, method.model)
        finite = finite_rows(batch)
        if not finite.all():
            raise InputError(f"clean samples must be finite: {_spoilt(batch, finite)}.")
        yield {name: value.detach() for name, value in batch.items()}


def finite_rows(batch: Inputs) -> Tensor:
    """Tell for each sample whether all its values are finite: (B,) bool."""
    rows = [torch.isfinite(value).flatten(1).all(dim=1) for value in batch.values()]
    return torch.stack(rows).all(dim=0)


def _spoilt(batch: Inputs, finite: Tensor, everywhere: Tensor | None = None) -> str:
    """Say which samples of which modalities hold NaN or Inf; arguments as for `_counted`."""
    names = [name for name, value in batch.items() if not torch.isfinite(value).all()]
    where = f"in {' and '.join(names)}, " if names else ""
    return f"NaN or Inf {where}{_counted(finite, everywhere)}"


def _counted(good: Tensor, everywhere: Tensor | None = None) -> str:
    """Say which samples are not good: (b,) of this rank; `everywhere` (B,) are all ranks'."""
    if everywhere is not None and good.all():
        return f"on another rank, {int((~everywhere).sum())} of all {len(everywhere)} samples"
    rows = (~good).nonzero().flatten().tolist()
    shown = ", ".join(map(str, rows[:8])) + (", …" if len(rows) > 8 else "")
    return f"{len(rows)} of {len(good)} samples: {shown}"
