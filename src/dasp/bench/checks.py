"""The contract that every method keeps, as a check that anyone can run on theirs."""

import copy
import inspect
import re
import tempfile
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dasp.core.errors import ContractError, DaspError, InputError
from dasp.core.types import Inputs
from dasp.methods import METHODS, Adaptation, Method, adapt, hyperparameters
from dasp.methods.base import check_version
from dasp.models import Toy
from dasp.streams.synthetic import CLEAN, SyntheticWorld

TWO = ("audio", "video")
THREE = ("audio", "video", "depth")
SOURCE_SAMPLES = 32
LR = 1e-2  # large, so that whatever may move is seen to move


def check_method(method: str | type[Method]) -> None:
    """Run the contract check on a registered name or a class; raise with all that is broken.

    Checked on models of two and of three modalities (a method may refuse three, by a
    `ContractError`): reset, rejection, freezing, saving, seeds, parameters that take no part,
    missing modalities, labels kept out, hyper-parameters readable, a version, and a docstring that
    names its paper. A method that needs source data (`needs_source`) or has an option
    `stream_length` is given them, and must ask for the former by an error of this library.

    >>> check_method("tent")
    """
    build = METHODS[method] if isinstance(method, str) else method
    broken = list(_class_faults(build))
    for modalities in (TWO, THREE):
        try:
            adapt(trial_model(modalities), build, **_length(build, modalities))
        except ContractError as error:
            if modalities == TWO:
                broken.append(f"refuses two modalities: {error}")
            continue
        for faults in (_state_faults, _seed_faults, _idle_faults, _missing_faults):
            found = faults(build, modalities)
            broken.extend(f"{message} ({len(modalities)} modalities)" for message in found)
    if broken:
        raise ContractError(f"{build.__name__} breaks the contract: " + "; ".join(broken) + ".")


def _class_faults(build: type[Method]) -> Iterator[str]:
    """Check docstring, version, hyper-parameters, and what `step` takes and asks for."""
    if not re.search(r"Paper:.*\b(19|20)\d\d\b", build.__doc__ or "", re.DOTALL):
        yield "its docstring does not cite its paper as 'Paper: authors, title, venue year'"
    try:
        check_version(build)
    except ContractError as error:
        yield str(error).rstrip(".")
    method, options = build(trial_model()), hyperparameters(build)
    for name, parameter in options.items():
        if parameter.default is inspect.Parameter.empty:
            yield f"hyper-parameter {name} has no default"
        elif getattr(method, name, None) != parameter.default:
            yield f"hyper-parameter {name} is not kept as an attribute of that name"
    if len(inspect.signature(build.step).parameters) != 2:
        yield "step() takes more than one batch"
    batch = SyntheticWorld(TWO).draw(4, seed=0)
    if not _refused(trial(build), {**batch.inputs, "labels": batch.labels}, InputError):
        yield "a batch with labels in it is accepted"
    if build.needs_source:
        tta = adapt(trial_model(), build, **_length(build, TWO))
        if not _refused(tta, trial_batches()[0], DaspError):
            yield "without fit() it runs and raises no DaspError that asks for it"


def _refused(tta: Adaptation, batch: Inputs, error: type[DaspError]) -> bool:
    try:
        tta(batch)
    except error:
        return True
    return False


def _state_faults(build: type[Method], modalities: tuple[str, ...]) -> Iterator[str]:
    """Check that rejecting and freezing change nothing, that saving and reset are exact."""
    tta, batches = trial(build, modalities, lr=LR), trial_batches(modalities)
    start, first = _state(tta), _logits(tta, batches)
    before = _state(tta)
    for name, value in batches[0].items():
        bad = value.clone()
        bad[0] = torch.nan
        outcome = tta({**batches[0], name: bad})
        if outcome.updated or outcome.rejected is None:
            yield f"NaN in {name} is not rejected"
        if not torch.isfinite(outcome.logits[1:]).all():
            yield f"NaN in one sample of {name} spoils the others' logits"
    if not _same(before, _state(tta)):
        yield "a rejected batch changes the state"
    before = _state(tta)
    with tta.frozen():
        if not _same(_logits(tta, batches), _logits(tta, batches)):
            yield "frozen() gives other logits the second time"
    if not _same(before, _state(tta)):
        yield "frozen() changes the state"
    other = trial(build, modalities, lr=LR)
    with tempfile.TemporaryDirectory() as folder:
        tta.save(Path(folder) / "state.safetensors")
        other.load(Path(folder) / "state.safetensors")
    if not _same(_logits(tta, batches), _logits(other, batches)):
        yield "a saved and loaded state continues with other logits"
    tta.reset()
    if not _same(start, _state(tta)):
        yield "reset() does not return to the source state"
    if not _same(first, _logits(tta, batches)):
        yield "after reset() the same stream gives other logits"


def _seed_faults(build: type[Method], modalities: tuple[str, ...]) -> Iterator[str]:
    runs = []
    for noise in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(noise)
            before = torch.get_rng_state()
            tta = trial(build, modalities, lr=LR, seed=3)
            runs.append(_logits(tta, trial_batches(modalities)))
            if not torch.equal(before, torch.get_rng_state()):
                yield "it draws from the global generator"
    if not _same(*runs):
        yield "the same seed gives other logits"


def _idle_faults(build: type[Method], modalities: tuple[str, ...]) -> Iterator[str]:
    tta, batches = trial(build, modalities, lr=LR), trial_batches(modalities)
    _logits(tta, batches)  # fills the optimiser's momenta, which would move an idle parameter
    for batch in batches:
        idle, before = _idle(tta, batch), _state(tta)
        tta(batch)
        if moved := _moved(before, _state(tta), idle):
            yield f"moves without a gradient: {moved}"


def _idle(tta: Adaptation, batch: Inputs) -> list[str]:
    """Name the weights that get no gradient from this batch, by a copy that runs the step."""
    method = copy.deepcopy(tta.method)
    twin = {n.replace("_model.", "model.", 1): p for n, p in method.named_parameters()}
    weights = {f"weight/{name}": twin[name] for name in tta.memory.weights}
    with torch.no_grad():
        tokens = batch if method.tunes_encoder else method.model.encode(batch)
    step = method.step(tokens)
    if step.loss is None:
        return list(weights)
    gradients = step.gradients or torch.autograd.grad(
        step.loss, list(weights.values()), allow_unused=True
    )
    return [n for n, gradient in zip(weights, gradients, strict=True) if gradient is None]


def _missing_faults(build: type[Method], modalities: tuple[str, ...]) -> Iterator[str]:
    """Try every part of the modalities on an adaptation whose optimiser has momenta.

    Each part on a clean batch, and on one in which a modality of it is shifted.
    """
    clean, *shifted = trial_batches(modalities)
    for size in range(1, len(modalities)):
        for part in combinations(modalities, size):
            tta = trial(build, modalities, lr=LR)
            batches = [clean, shifted[modalities.index(part[0])]]
            _logits(tta, batches)
            try:
                for batch in batches:
                    yield from _part_faults(tta, {name: batch[name] for name in part})
            except Exception as error:
                yield f"fails on {' and '.join(part)} alone ({type(error).__name__}: {error})"


def _part_faults(tta: Adaptation, batch: Inputs) -> Iterator[str]:
    before, seen, shown = _state(tta), tta.memory.batch_index, " and ".join(batch)
    with tta.frozen():
        tta(batch)
    if set(tta.alone(batch)) != set(batch):
        yield "alone() speaks of a modality that is missing"
    outcome = tta(batch)
    if outcome.rejected or not torch.isfinite(outcome.logits).all():
        yield f"gives no prediction from {shown} alone"
    if tta.memory.batch_index != seen + 1:
        yield f"{shown} alone does not count as one batch"
    if outcome.diagnosis is not None and set(outcome.diagnosis.scores) != set(batch):
        yield "its diagnosis scores a modality that is missing"
    absent = set(tta.method.model.modalities) - set(batch)
    owned = [path for path in before if absent & set(path.replace("/", ".").split("."))]
    if moved := _moved(before, _state(tta), owned):
        yield f"{shown} alone moves what belongs to a missing modality: {moved}"


def _state(tta: Adaptation) -> dict[str, Tensor]:
    snapshot = tta.memory.capture()
    return {**snapshot.tensors, "batch_index": torch.tensor(snapshot.batch_index)}


def _moved(before: dict[str, Tensor], after: dict[str, Tensor], names: list[str]) -> str:
    return ", ".join(name for name in names if not torch.equal(before[name], after[name]))


def _logits(tta: Adaptation, batches: list[Inputs]) -> list[Tensor]:
    return [tta(batch).logits for batch in batches]


def _same(first: Any, second: Any) -> bool:
    """Tell whether two lists or dicts of tensors are equal to the bit."""
    try:
        torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)
    except AssertionError:
        return False
    return True


def trial_model(modalities: tuple[str, ...] = TWO) -> nn.Module:
    """Return a toy with one layer in each encoder, so that every method can be tried on it."""
    return Toy(modalities=modalities, depth=1, seed=1)


def trial_batches(modalities: tuple[str, ...] = TWO) -> list[Inputs]:
    """Return batches of 16: clean, each modality shifted, clean."""
    stream = SyntheticWorld(modalities).stream([CLEAN, *modalities, CLEAN], 1, 16, strength=4.0)
    return [batch.inputs for batch in stream]


def _length(build: type[Method], modalities: tuple[str, ...]) -> dict[str, Any]:
    """Return the length of the trial stream as an option, for a method that asks for it."""
    asked = "stream_length" in hyperparameters(build)
    return {"stream_length": len(trial_batches(modalities))} if asked else {}


def trial(
    method: str | type[Method], modalities: tuple[str, ...] = TWO, **options: Any
) -> Adaptation:
    """Adapt a trial model, with a stream's length and source data where the method needs them."""
    build = METHODS[method] if isinstance(method, str) else method
    tta = adapt(trial_model(modalities), build, **(_length(build, modalities) | options))
    if build.needs_source:
        tta.fit([SyntheticWorld(modalities).draw(SOURCE_SAMPLES, seed=1).inputs])
    return tta
