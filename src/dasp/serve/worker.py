"""The worker: one thread that runs the requests of many clients through one adaptation.

Requests are run in the order of their arrival. Those that wait are joined to one batch, because
adaptation wants batches: up to `samples` of them, or as many as come within `window` seconds.
Every batch is in the journal before it is run, and its answer before it is sent. A request with an
id is run once: asking again with the same id returns the same answer, also after a kill.
"""

import json
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from dasp.core.contract import check_batch
from dasp.core.errors import DaspError, OptionError, StateError
from dasp.core.types import Outcome
from dasp.methods import Adaptation
from dasp.methods.base import device_of, whole
from dasp.methods.state import State
from dasp.serve.journal import Journal, Record, read_records, segments
from dasp.service.wire import outcome_facts, outcome_json

LOGGER = logging.getLogger("dasp")
LARGEST_SEGMENT = 256 * 2**20  # bytes of records after which the next segment begins
NOT_WRITTEN = "the journal cannot be written, so nothing is learned: free space on its disk"
REMEMBERED = 32 * 2**20  # bytes of answers that are kept for clients that ask again
OVERHEAD = 600  # bytes that an answer takes beside its text
Result = TypeVar("Result")


class BusyError(DaspError, RuntimeError):
    """Too many requests wait; nothing was changed. Ask again later."""


class ConflictError(DaspError, RuntimeError):
    """A request id was used for another batch before."""


@dataclass(frozen=True)
class WorkerOptions:
    """How requests are joined and written down."""

    window: float = 0.02
    """Seconds that the first request of a batch waits for others."""
    samples: int = 64
    """Samples per batch at most; a request may not have more."""
    waiting: int = 256
    """Requests that may wait; more are refused."""
    checkpoint_every: int = 50
    """Batches between two checkpoints."""
    keep: int | None = 8
    """Checkpoints that are kept, each with the batches after it, to roll back to; None: all."""
    hang: float = 60.0
    """Seconds after which a batch that still runs is reported as hung."""

    def __post_init__(self) -> None:
        whole(samples=self.samples, waiting=self.waiting, checkpoint_every=self.checkpoint_every)
        if self.keep is not None:
            whole(keep=self.keep)
        if not (0 <= self.window < 3600 and self.hang > 0):
            raise OptionError("window must be 0 to 3600 seconds, and hang above 0.")


@dataclass(frozen=True)
class Waiting:
    """A request that waits for its turn: a batch, or an action between two batches."""

    future: "Future[Any]"
    action: Callable[[], Any] | None = None
    inputs: dict[str, Tensor] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)  # id, digest and size, for the journal
    key: object = None  # requests of the same key may be joined
    learn: bool = True
    since: float = field(default_factory=time.monotonic)


class Worker:
    """An adaptation, its journal, and the requests that wait for it."""

    def __init__(
        self, tta: Adaptation, folder: str | Path, options: WorkerOptions | None = None
    ) -> None:
        """Open a journal; if there is one in the directory, continue from its end."""
        self.tta, self.options = tta, options or WorkerOptions()
        self.journal = Journal(folder, self.options.keep)
        self.batches = 0  # in the journal so far
        self.write_errors = 0
        self._asked: dict[str, tuple[str, Future[bytes]]] = {}  # ids that wait or run
        self._answers: OrderedDict[str, tuple[str, bytes]] = OrderedDict()  # ids that are done
        self._remembered = 0  # bytes of these answers
        self._waiting: deque[Waiting] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._busy_since: float | None = None
        try:
            self._recover()
        except BaseException:
            self.journal.close()
            raise
        self._thread = threading.Thread(target=self._run, name="dasp-worker", daemon=True)
        self._thread.start()

    # What clients call, from any thread

    def submit(
        self, inputs: dict[str, Tensor], request_id: str = "", digest: str = "", learn: bool = True
    ) -> "Future[bytes]":
        """Queue a batch; the result is its answer in JSON.

        Args:
            inputs: {name: (B, ...)}; modalities may be missing, but not all of them.
            request_id: a text that no other request has; asking again returns the same answer.
            digest: a hash of the request, by which another one of the same id is refused.
            learn: whether to adapt, or only to predict with the present state.
        """
        model = self.tta.model
        check_batch(inputs, model, part=True)
        size = len(next(iter(inputs.values())))
        if size > self.options.samples:
            raise OptionError(
                f"{size} samples in one request, at most {self.options.samples} are taken: split "
                "it, or start the server with more --samples."
            )
        about = {"id": request_id, "digest": digest, "size": size}
        kinds = {(name, own.shape[1:], own.dtype) for name, own in inputs.items()}
        key = (learn, frozenset(kinds))
        alone = not all(torch.isfinite(own).all() for own in inputs.values())
        with self._changed:
            if (known := self._known(request_id, digest)) is not None:
                return known
            if len(self._waiting) >= self.options.waiting:
                raise BusyError(f"{len(self._waiting)} requests wait already: ask again later.")
            future = _promise()
            self._add(Waiting(future, None, inputs, about, object() if alone else key, learn))
            if request_id:
                self._asked[request_id] = digest, future
        return future

    def _known(self, request_id: str, digest: str) -> "Future[bytes] | None":
        """Return the answer to an id that was asked before; it may still be to come."""
        found = self._asked.get(request_id) or self._answers.get(request_id)
        if found is None:
            return None
        if found[0] != digest:
            raise ConflictError(
                f"the request id {request_id!r} was used for another batch: give each batch an "
                "id of its own."
            )
        if isinstance(found[1], Future):
            return found[1]
        self._answers.move_to_end(request_id)
        future = _promise()
        future.set_result(found[1])
        return future

    def between(self, action: Callable[[], Result]) -> "Future[Result]":
        """Run an action between two batches, after those that wait."""
        future: Future[Result] = _promise()
        with self._changed:
            self._add(Waiting(future, action))
        return future

    def reset(self) -> "Future[None]":
        """Return to the source state, after the batches that wait."""
        return self.between(lambda: self._change(self.tta.reset, "reset"))

    def load_state(self, state: State) -> "Future[None]":
        """Take over a state, after the batches that wait."""
        return self.between(lambda: self._change(lambda: self.tta.load_state(state), "upload"))

    def roll_back(self, number: int | None = None) -> "Future[int]":
        """Return to the state at the beginning of a segment, by default the last one; return
        the number of that segment."""
        return self.between(lambda: self._roll_back(number))

    def health(self) -> dict[str, Any]:
        """Return how the worker is: `problem` is None, or says what is wrong."""
        since, alive = self._busy_since, self._thread.is_alive()
        busy = 0.0 if since is None else time.monotonic() - since
        problem = None
        if not alive:
            problem = "the worker has ended: restart the server; see its log for the cause."
        elif busy > self.options.hang:
            problem = f"the model has been running one batch for {busy:.0f} s: restart the server."
        return {"problem": problem, "busy_seconds": round(busy, 3), "batches": self.batches,
                "waiting": len(self._waiting)}  # fmt: skip

    def close(self, patience: float = 60.0) -> None:
        """Finish what waits, write a checkpoint and close the journal."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(patience)
        self.journal.close()

    def _add(self, waiting: Waiting) -> None:
        if self._closed:
            raise BusyError("the server is shutting down: ask again when it is back.")
        self._waiting.append(waiting)
        self._changed.notify_all()

    # What the thread does

    def _run(self) -> None:
        while taken := self._take():
            self._busy_since = time.monotonic()
            action = taken[0].action
            if action is None:
                self._answer(taken)
            else:
                _fulfil(taken[0].future, action)
            if self.batches - self._begun_at() >= self.options.checkpoint_every or (
                self.journal.size > LARGEST_SEGMENT
            ):
                self._checkpoint()
            taken.clear()  # nothing of it is kept while it waits for the next
            self._busy_since = None
        self._checkpoint()

    def _take(self) -> list[Waiting]:
        """Wait for requests and return those of the next batch; none when all is done."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return []
                self._changed.wait()
            deadline = self._waiting[0].since + self.options.window
            while True:
                taken, full = self._joined()
                left = deadline - time.monotonic()
                if full or left <= 0 or self._closed:
                    for _ in taken:
                        self._waiting.popleft()
                    return taken
                self._changed.wait(left)

    def _joined(self) -> tuple[list[Waiting], bool]:
        """Return the first requests that can be one batch, and whether no other can join them."""
        first, size = self._waiting[0], 0
        if first.action is not None:
            return [first], True
        taken: list[Waiting] = []
        for one in self._waiting:
            size += one.about.get("size", 0)
            if one.action is not None or one.key != first.key or size > self.options.samples:
                return taken, True
            taken.append(one)
        return taken, size == self.options.samples

    def _answer(self, taken: Sequence[Waiting]) -> None:
        """Run the batch of some requests; if it fails, each by itself, for one may be at fault."""
        names = taken[0].inputs
        inputs = {name: torch.cat([one.inputs[name] for one in taken]) for name in names}
        try:
            outcome = self._run_batch(inputs, [one.about for one in taken], taken[0].learn)
        except Exception as error:
            if len(taken) > 1:
                for one in taken:
                    self._answer([one])
                return
            with self._changed:
                self._asked.pop(taken[0].about["id"], None)  # asking again is running again
            taken[0].future.set_exception(error)
            return
        answers = self._tell(outcome.logits, outcome_facts(outcome), [one.about for one in taken])
        for one, answer in zip(taken, answers, strict=True):
            self._remember(one.about, answer)
            one.future.set_result(answer)

    def _run_batch(
        self, inputs: dict[str, Tensor], requests: list[dict[str, Any]], learn: bool
    ) -> Outcome:
        """Write a batch down, run it, and write its answer down.

        If the journal cannot be written, the batch is predicted and not learned from, so that the
        journal still says all that was learned.
        """
        if not self._written("batch", {"requests": requests, "learn": learn}, inputs):
            return replace(run(self.tta, inputs, learn=False), skipped=NOT_WRITTEN)
        self.batches += 1
        return self._run_written(inputs, learn)

    def _run_written(self, inputs: dict[str, Tensor], learn: bool) -> Outcome:
        try:
            outcome = run(self.tta, inputs, learn)
        except Exception as error:
            told = {"type": type(error).__name__, "message": str(error)}
            self._written("answer", {"error": told})
            raise
        self._written("answer", {"facts": outcome_facts(outcome)}, {"logits": outcome.logits})
        return outcome

    def _written(
        self, kind: str, facts: dict[str, Any], tensors: dict[str, Tensor] | None = None
    ) -> bool:
        try:
            self.journal.append(kind, facts, tensors)
        except OSError as error:
            self.write_errors += 1
            LOGGER.error("dasp could not write the journal %s: %s", self.journal.folder, error)
            return False
        return True

    def _tell(
        self, logits: Tensor, facts: dict[str, Any], requests: list[dict[str, Any]]
    ) -> Iterator[bytes]:
        """Yield the answer to each request of a batch: its own rows of the logits."""
        start, number = 0, None if facts["skipped"] == NOT_WRITTEN else self.batches - 1
        for about in requests:
            rows = logits[start : start + about["size"]].cpu()
            start += about["size"]
            told = {"id": about["id"], "batch": number, **outcome_json(rows, facts)}
            yield json.dumps(told, allow_nan=False).encode()

    def _remember(self, about: dict[str, Any], answer: bytes) -> None:
        """Keep an answer for a client that asks again; forget the oldest when there are many."""
        if not about["id"]:
            return
        name, kept = about["id"], self._answers
        with self._changed:  # the text alone: a future would keep all that waited for it
            self._asked.pop(name, None)
            if name in kept:
                self._remembered -= len(kept.pop(name)[1]) + OVERHEAD
            kept[name] = about["digest"], answer
            self._remembered += len(answer) + OVERHEAD
            while self._remembered > REMEMBERED:
                self._remembered -= len(kept.popitem(last=False)[1][1]) + OVERHEAD

    # Segments

    def _begun_at(self) -> int:
        assert self.journal.last is not None
        return int(self.journal.last.begin["batches"])

    def _checkpoint(self) -> None:
        """Begin a segment with the present state, if anything was run since the last one."""
        if self.batches > self._begun_at():
            try:
                self.journal.begin(self.tta.state(), "checkpoint", self.batches)
            except OSError as error:
                self.write_errors += 1
                LOGGER.error("dasp could not write a checkpoint: %s", error)

    def _change(self, change: Callable[[], None], cause: str) -> None:
        """Replace the state and begin a segment with it; if that fails, keep the present one."""
        before = self.tta.state()
        change()
        try:
            self.journal.begin(self.tta.state(), cause, self.batches)
        except OSError:
            self.tta.load_state(before)
            raise

    def _roll_back(self, number: int | None) -> int:
        kept = segments(self.journal.folder)
        numbers = [one.number for one in kept]
        number = numbers[-1] if number is None else number
        if number not in numbers:
            raise StateError(f"no checkpoint {number} is kept: choose one of {numbers}.")
        state = kept[numbers.index(number)].state
        self._change(lambda: self.tta.load(state), "rollback")
        return number

    # After a start

    def _recover(self) -> None:
        """Run the batches of the last segment again, and remember the answers that are kept."""
        last = self.journal.last
        if last is None:
            self.journal.begin(self.tta.state(), "start", 0)
            return
        self.tta.resume(last.state)
        for segment in segments(self.journal.folder)[:-1]:
            self.batches = segment.begin["batches"]
            for batch, _, answer in turns(read_records(segment.records)):
                self.batches += 1
                self._recall(batch, answer)
        self.batches = last.begin["batches"]
        unfinished: tuple[Record, bool] | None = None
        for batch, again, answer in turns(read_records(last.records)):
            if unfinished is not None:  # its answer could not be written, then others could
                run_again(self.tta, unfinished[0], None)
            self.batches += 1
            unfinished = (batch, again) if answer is None else None
            if answer is not None and not run_again(self.tta, batch, answer):
                LOGGER.warning(
                    "batch %s gives another answer than before the restart: another machine, "
                    "library or number of threads?",
                    self.batches - 1,
                )
            self._recall(batch, answer)
        if unfinished is not None:
            self._finish(*unfinished)

    def _recall(self, batch: Record, answer: Record | None) -> None:
        if answer is not None and "error" not in answer.facts:
            requests = batch.facts["requests"]
            told = self._tell(answer.tensors["logits"], answer.facts["facts"], requests)
            for about, one in zip(requests, told, strict=True):
                self._remember(about, one)

    def _finish(self, batch: Record, again: bool) -> None:
        """Run the batch that was running when the process was killed, but only once more."""
        if again:
            message = "this batch ended the process twice and was skipped"
            LOGGER.error("batch %s: %s", self.batches - 1, message)
            self._written("answer", {"error": {"type": "StateError", "message": message}})
            return
        self._written("again", {})
        with suppress(Exception):  # written down; whoever asks again gets it
            outcome = self._run_written(batch.tensors, batch.facts["learn"])
            requests = batch.facts["requests"]
            told = self._tell(outcome.logits, outcome_facts(outcome), requests)
            for about, answer in zip(requests, told, strict=True):
                self._remember(about, answer)


def run(tta: Adaptation, inputs: dict[str, Tensor], learn: bool) -> Outcome:
    """Run a batch on the model's device, in the order of its modalities; a file has neither.

    If not `learn`, predict with the present state.
    """
    names: Sequence[str] = tta.model.modalities  # type: ignore[assignment]
    device = device_of(tta.model)
    inputs = {name: inputs[name].to(device) for name in names if name in inputs}
    with nullcontext() if learn else tta.frozen():
        return tta(inputs)


def run_again(tta: Adaptation, batch: Record, answer: Record | None) -> bool:
    """Run a batch of a journal again; return whether its answer is the same, bit for bit.

    A batch that ended in an error had changed nothing, and is not run.
    """
    if answer is not None and "error" in answer.facts:
        return True
    outcome = run(tta, batch.tensors, batch.facts["learn"])
    if answer is None:
        return True
    ours, theirs = (own.cpu().contiguous() for own in (outcome.logits, answer.tensors["logits"]))
    bits = torch.uint8
    equal = ours.shape == theirs.shape and torch.equal(ours.view(bits), theirs.view(bits))
    return equal and outcome_facts(outcome) == answer.facts["facts"]


def turns(records: Iterator[Record]) -> Iterator[tuple[Record, bool, Record | None]]:
    """Yield each batch of a segment, whether it was run again after a kill, and its answer."""
    batch: Record | None = None
    again = False
    for record in records:
        if record.kind == "batch":
            if batch is not None:
                yield batch, again, None
            batch, again = record, False
        elif record.kind == "again":
            again = True
        elif record.kind == "answer" and batch is not None:
            yield batch, again, record
            batch = None
    if batch is not None:
        yield batch, again, None


def _promise() -> "Future[Any]":
    """Return a future that nobody can cancel: what has begun is written down and finished."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def _fulfil(future: "Future[Any]", action: Callable[[], Any]) -> None:
    try:
        future.set_result(action())
    except Exception as error:
        future.set_exception(error)
