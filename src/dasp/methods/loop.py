"""A model that adapts while it is used: the handle that `dasp.adapt` returns."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from dasp.core.errors import OptionError, StateError
from dasp.core.types import Inputs, Outcome, Tokens, Trainable
from dasp.methods import intake, saved
from dasp.methods.base import Method
from dasp.methods.checkpoint import Checkpoint
from dasp.methods.engine import Engine
from dasp.methods.group import apart
from dasp.methods.options import Options
from dasp.methods.owners import Owners
from dasp.methods.state import Snapshot
from dasp.service.recorder import Recorder

_OWNERS = Owners()


class Adaptation:
    """A model that adapts while it is used. Calling it *is* adapting.

    Whatever goes wrong inside a call (a bad batch, an exception of the model's), the state
    afterwards is the state before it. Calls from several threads wait for each other, so that
    they give what the same calls give one after another, in the order in which they came.
    """

    def __init__(
        self,
        method: Method,
        options: Options,
        recorder: Recorder,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.method, self.options = method, options
        self._engine = Engine(method, options)
        self.memory = self._engine.memory
        self._recorder, self._checkpoint = recorder, checkpoint
        self._lock = threading.RLock()
        self._thread = threading.local()
        _OWNERS.claim(self, method)

    def __repr__(self) -> str:
        method, model = type(self.method).__name__, type(self.model).__name__
        return (
            f"<{method} on {model}, {self.memory.batch_index} batches seen, lr {self.options.lr:g}>"
        )

    def __reduce__(self) -> NoReturn:
        raise StateError(
            "an adaptation cannot be copied or pickled: take tta.state(), adapt another copy of "
            "the model, and load_state() it there."
        )

    @property
    def source(self) -> Snapshot:
        """The state that `reset` returns to: the one before the first batch.

        It is taken when first needed, so initial weights may be set until then:
        `tta.adapters["audio"].stable.down.weight.data.copy_(mine)`.
        """
        return self._engine.source

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

    @property
    def counters(self) -> dict[str, Any]:
        """What happened so far, counted: a copy; `dasp.service.counters` says what each means."""
        with self._lock:
            return self._recorder.counters.as_dict()

    def metrics(self) -> str:
        """Return the counters, last scores and adapters' norms in Prometheus' text format."""
        with self._lock:
            return self._recorder.metrics(self.memory.batch_index, self._engine.distances())

    @torch.inference_mode(False)
    @torch.enable_grad()
    def __call__(self, inputs: Inputs) -> Outcome:
        """Infer and adapt on raw inputs {name: (B, ...)}; also inside `torch.no_grad()`.

        Modalities may be missing, but not all: leave their names out (see `methods.missing`).
        """
        return self._recorded(inputs, "inputs")

    @torch.inference_mode(False)
    @torch.enable_grad()
    def on_tokens(self, tokens: Tokens) -> Outcome:
        """Infer and adapt on tokens {name: (B, N, D)} already encoded by this model."""
        return self._recorded(tokens, "tokens")

    def alone(self, inputs: Inputs) -> dict[str, Tensor]:
        """Return what the adapted model says of each modality by itself: {name: (B, C)} logits.

        Changes nothing. Beside the joint prediction it tells which sensor a mistake comes from.
        """
        with self._lock:
            _OWNERS.check(self)
            return intake.alone(self._engine, inputs, "inputs")

    def alone_on_tokens(self, tokens: Tokens) -> dict[str, Tensor]:
        """Do as `alone` does, on tokens {name: (B, N, D)} already encoded by this model."""
        with self._lock:
            _OWNERS.check(self)
            return intake.alone(self._engine, tokens, "tokens")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Within this block, calls of this thread infer with the adapted state, change nothing."""
        previous, self._thread.frozen = self._is_frozen(), True
        try:
            yield
        finally:
            self._thread.frozen = previous

    def reset(self) -> None:
        """Return to the source state, bit for bit: weights, optimiser, averages, draws."""
        with self._lock:
            _OWNERS.check(self)
            self.memory.restore(self.source)
            self._recorder.event("reset", count="resets")

    def fit(self, source: Iterable[Inputs]) -> None:
        """Let the method learn from clean source batches; what it learns survives `reset`."""
        group = self.method.group
        with self._lock, group.together():
            _OWNERS.check(self)
            self.memory.restore(self.source)
            batches = group.join(intake.clean_batches(source, self.method))
            try:
                with apart(self.method):
                    self.method.fit(batches)
                group.settle()
            except BaseException:
                self.memory.restore(self.source)
                raise
            self._engine.forget_source()
            self._recorder.event("fit")

    def state(self) -> saved.State:
        """Return the adapted state (not the model) as one plain dict; `methods.saved` shows it."""
        with self._lock:
            _OWNERS.check(self)
            return saved.take(self.memory, self.source, self.counters)

    def load_state(self, state: saved.State) -> None:
        """Take over a state of the same model, method and hyper-parameters.

        Any other is refused and changes nothing. lr, steps and predict are not part of a state;
        the counters tell of this run and stay (`resume` takes them over too).
        """
        self._load(state, "this state")

    def save(self, path: str | Path) -> None:
        """Write `state()` to one safetensors file, atomically; it is on the disk on return."""
        with self._lock:
            saved.write(path, self.state())
            self._recorder.event("save", count="saves", path=path)

    def load(self, path: str | Path) -> None:
        """Do as `load_state` does, with a file that `save` or a checkpoint wrote."""
        self._load(saved.read(path), str(path), path)

    def resume(self) -> int:
        """Go on from the checkpoint; return how many batches it has behind it, 0 without one.

        Leave out that many of the same stream: what follows is then what an unbroken run gives.
        """
        if self._checkpoint is None:
            raise OptionError('resume() needs a checkpoint: adapt(…, checkpoint="a path").')
        path = self._checkpoint.path
        if not path.exists():
            return 0
        with self._lock:
            state = saved.read(path)
            self._restore(state, str(path))
            self._recorder.counters.take(state.get("counters", {}))
            self._recorder.event("resume", count="loads", path=path)
            return self._checkpoint.start_from(self._recorder.counters.totals["batches"])

    def _load(self, state: saved.State, where: str, path: str | Path | None = None) -> None:
        with self._lock:
            self._restore(state, where)
            self._recorder.event("load", count="loads", path=path)

    def _restore(self, state: saved.State, where: str) -> None:
        _OWNERS.check(self)
        self.memory.restore(saved.checked(state, self.memory, self.source, where))

    def _recorded(self, batch: Inputs, kind: str) -> Outcome:
        frozen = self._is_frozen()
        with self._lock:
            try:
                _OWNERS.check(self)
                outcome = intake.run(self._engine, batch, kind, frozen)
            except Exception as error:
                if not frozen:
                    self._recorder.error(error)
                raise
            index, distances = self.memory.batch_index, self._engine.distances
            self._recorder.outcome(outcome, list(batch), index, distances, frozen)
            if self._checkpoint is not None and not frozen:
                self._checkpoint.after_batch(self._recorder, self.state)
            return outcome

    def _is_frozen(self) -> bool:
        return getattr(self._thread, "frozen", False)
