"""Measure what each method costs: time, memory and passes, one method after another, each alone."""

import copy
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import register_multi_grad_hook

from dasp.bench.cells import batches_of, fill_store, peak_mib, provenance, start
from dasp.bench.engines import Workspace, open_features
from dasp.bench.features import Features
from dasp.bench.plan import Job
from dasp.bench.results import Result, claimed, is_done, write_result
from dasp.core.errors import DataError
from dasp.core.progress import with_bar
from dasp.core.types import Inputs
from dasp.data.loading import run_jobs
from dasp.methods import Adaptation, adapt, hyperparameters

# Calls of a model, see `dasp.core.contract`: one encoder for each modality given, or the fusion.
ENCODERS = ("encode", "encode_prompted", "encode_carrying")
FUSIONS = (
    "fuse", "fuse_prepared", "fuse_with_attention", "fuse_own_norm", "fuse_top_norm",
    "fuse_carrying",
)  # fmt: skip
LOADING = "raw inputs read from the feature store, where they lie decoded and corrupted"
STATUS, REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def measure_costs(jobs: Sequence[Job], workspace: Workspace, show: bool = True) -> None:
    """Measure every job in a process of its own, with nothing beside it, and write the results.

    Not even a second runner of this folder runs beside it. Safe to interrupt: what is written is
    not measured again.
    """
    filled = run_jobs(partial(_fill, workspace), jobs, workspace.workers)
    deque(with_bar(filled, len(jobs), "fill the store", show), maxlen=0)
    for job in with_bar(jobs, len(jobs), "measure", show):
        with claimed(workspace.results, "cost", wait=True):
            if not is_done(workspace.results, job.run):
                measured = _measured_in_new_process(job, workspace)
                write_result(workspace.results, Result(job.run, None, measured))


def _fill(workspace: Workspace, job: Job) -> None:
    fill_store(job, open_features(job, workspace))


def _measured_in_new_process(job: Job, workspace: Workspace) -> dict[str, Any]:
    context = get_context("spawn")  # a fork would begin with all that this process holds
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(job, workspace, there), daemon=True)
    process.start()
    there.close()
    try:
        found: dict[str, Any] | Exception = here.recv()
    except EOFError:
        process.join()
        raise DataError(
            f"measuring {job.name} ended early with exit code {process.exitcode}: free some memory "
            "or lower --batch-sizes, and run it again."
        ) from None
    finally:
        process.terminate()
        process.join()
    if isinstance(found, Exception):
        raise found
    return found


def _work(job: Job, workspace: Workspace, there: Connection) -> None:
    """Measure, in the new process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    torch.set_num_threads(job.run.cost["threads"])
    try:
        there.send(measure(job, open_features(job, workspace)))
    except Exception as error:
        there.send(error)


def measure(job: Job, features: Features) -> dict[str, Any]:
    """Return what a method's stream takes: passes, trained parameters, memory and seconds.

    First the method alone goes through the stream: that warms up, counts its passes and shows its
    memory. Then Source and the method take turns, a whole stream each from the source state, so
    that whatever disturbs the machine disturbs both.
    """
    tta = start(job, features)
    _touch(features, job)
    before = memory_mib("VmRSS")
    with suppress(OSError):
        REFERENCES.write_text("5")  # begins the peak anew, if the system allows it
    with counted_passes(features.model) as passes:
        counts, _ = _walk(tta, job, features)
    peak = memory_mib("VmHWM") or peak_mib()
    source = adapt(copy.deepcopy(features.model), "source")
    _walk(source, job, features)
    times: dict[str, list[dict[str, float]]] = {"source": [], "rounds": []}
    for _ in range(job.run.cost["rounds"]):
        for name, adaptation in (("source", source), ("rounds", tta)):
            times[name].append(_walk(adaptation, job, features)[1])
    return {
        **counts,
        "trainable": tta.trainable.count,
        "total": tta.trainable.total,
        "passes": passes.rows(),
        "needs": requirements(tta),
        **times,
        "memory": {
            "before_mib": before and round(before, 1),
            "peak_mib": round(peak, 1),
            "over_mib": before and round(peak - before, 1),
        },
        "loading": LOADING,
        **provenance(job.run.method, features.device.type),
    }


def requirements(tta: Adaptation) -> list[str]:
    """Return what a method needs beyond a model of the basic contract, in words.

    >>> from dasp.models import Toy
    >>> requirements(adapt(Toy(depth=1), "brimpr"))  # doctest: +ELLIPSIS
    ['two modalities', 'source samples', 'embed', 'encode_prompted', ...]
    """
    method = tta.method
    own = {
        "encoder gradients": method.tunes_encoder and tta.trainable.shapes and not method.adapters,
        "two modalities": method.exactly_two_modalities,
        "source samples": method.needs_source,
        "stream length": "stream_length" in hyperparameters(type(method)),
    }
    parts = {part for need in method.needs for part in vars(need) if not part.startswith("_")}
    return [name for name, needed in own.items() if needed] + sorted(parts)


@torch.no_grad()
def _touch(features: Features, job: Job) -> None:
    """Send one sample through the model, so that the code it needs is in memory."""
    _, inputs = next(_batches(features, job))
    tokens = features.model.encode({name: value[:1] for name, value in inputs.items()})  # type: ignore[operator]
    features.model.fuse(tokens)  # type: ignore[operator]


def _walk(tta: Adaptation, job: Job, features: Features) -> tuple[dict[str, Any], dict[str, float]]:
    """Go once through the stream from the source state; return counts and seconds."""
    tta.reset()
    counts = {"samples": 0, "batches": 0, "updates": 0}
    seconds = {"load": 0.0, "adapt": 0.0, "processor": 0.0}
    began = time.perf_counter()
    for reset, inputs in _batches(features, job):
        loaded, worked = time.perf_counter(), time.process_time()
        if reset:
            tta.reset()
        outcome = tta(inputs)
        seconds["processor"] += time.process_time() - worked
        seconds["load"] += loaded - began
        began = time.perf_counter()
        seconds["adapt"] += began - loaded
        counts["samples"] += len(outcome.logits)
        counts["batches"] += 1
        counts["updates"] += outcome.updated
    return counts, {name: round(value, 4) for name, value in seconds.items()}


def _batches(features: Features, job: Job) -> Iterator[tuple[bool, Inputs]]:
    """Yield raw batches in the order of the stream, and whether a reset comes before each."""
    for visit in job.visits():
        for number, (_, inputs) in enumerate(batches_of(features, visit, job, encoded=False)):
            yield visit.reset and number == 0, inputs


def memory_mib(name: str) -> float | None:
    """Return a line of this process's status, None where the system does not tell.

    Not ru_maxrss: that of a new process begins with what its parent held.
    """
    if not STATUS.exists():
        return None
    lines = STATUS.read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), None)


class Passes:
    """Samples that went through each stage: (call, modalities, kept for a gradient?).

    Half a batch counts half of it; a sample of which some tokens are left out counts as one. A
    backward is counted each time a gradient arrives at the output of a forward.
    """

    def __init__(self) -> None:
        self.forward: Counter[tuple[str, tuple[str, ...], bool]] = Counter()
        self.backward: Counter[tuple[str, tuple[str, ...], bool]] = Counter()
        self._inside = False

    def run(self, name: str, call: Callable[..., Any], first: Any, *rest: Any, **more: Any) -> Any:
        """Run a call of the model and count it, unless another counted call makes it."""
        if self._inside:
            return call(first, *rest, **more)
        self._inside = True
        try:
            out = call(first, *rest, **more)
        finally:
            self._inside = False
        if name in ENCODERS:
            for modality, value in first.items():
                self._count(name, (modality,), len(value), out[modality])
        else:
            # A fusion of prepared tokens is a `fuse`.
            stage, fused = ("fuse", rest[0]) if name == "fuse_prepared" else (name, first)
            self._count(stage, tuple(fused), len(out.logits), out)
        return out

    def _count(self, call: str, names: tuple[str, ...], samples: int, out: Any) -> None:
        results = [value for value in _tensors(out) if value.requires_grad]
        passed = {(call, names, bool(results)): samples}
        self.forward.update(passed)
        if results:
            register_multi_grad_hook(results, lambda _: self.backward.update(passed), mode="any")

    def rows(self) -> list[dict[str, Any]]:
        """Return the counts as plain data, encoders first."""
        stages = sorted(self.forward, key=lambda stage: (stage[0] not in ENCODERS, stage))
        return [
            {"call": call, "modalities": list(names), "gradient": gradient}
            | {"forward": self.forward[stage], "backward": self.backward[stage]}
            for stage in stages
            for call, names, gradient in [stage]
        ]


@contextmanager
def counted_passes(model: nn.Module) -> Iterator[Passes]:
    """Count the passes through a model for as long as the block lasts."""
    passes, before = Passes(), dict(vars(model))
    calls = [name for name in ENCODERS + FUSIONS if hasattr(model, name)]
    for name in calls:
        setattr(model, name, partial(passes.run, name, getattr(model, name)))
    try:
        yield passes
    finally:
        for name in calls:
            delattr(model, name)
            if name in before:
                setattr(model, name, before[name])


def _tensors(value: Any) -> list[Tensor]:
    """Return the tensors in what a model returned: a tensor, or a dataclass of them."""
    if isinstance(value, Tensor):
        return [value]
    return [tensor for part in getattr(value, "__dict__", {}).values() for tensor in _tensors(part)]
