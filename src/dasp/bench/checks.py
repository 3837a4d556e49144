"""The contract that every method keeps, as a check that anyone can run on theirs."""

import copy
import inspect
import re
import tempfile
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dasp.core.errors import ContractError, DaspError, InputError
from dasp.core.types import Inputs
from dasp.methods import METHODS, Adaptation, Method, adapt, hyperparameters
from dasp.methods.base import check_version
from dasp.methods.state import Snapshot
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
    `stream_length` is given them, and must ask for them by an error of this library otherwise.

    >>> check_method("tent")
    """
    build = METHODS[method] if isinstance(method, str) else method
    broken = [message for check in _STATIC for message in check(build)]
    for modalities in (TWO, THREE):
        try:
            adapt(trial_model(modalities), build)
        except ContractError as error:
            if modalities == TWO:
                broken.append(f"refuses two modalities: {error}")
            continue
        for dynamic in _DYNAMIC:
            found = dynamic(build, modalities)
            broken.extend(f"{message} ({len(modalities)} modalities)" for message in found)
    if broken:
        raise ContractError(f"{build.__name__} breaks the contract: " + "; ".join(broken) + ".")


def _cites_paper(build: type[Method]) -> Iterator[str]:
    if not re.search(r"Paper:.*\b(19|20)\d\d\b", build.__doc__ or "", re.DOTALL):
        yield "its docstring does not cite its paper as 'Paper: authors, title, venue year'"


def _has_a_version(build: type[Method]) -> Iterator[str]:
    try:
        check_version(build)
    except ContractError as error:
        yield str(error).rstrip(".")


def _hyperparameters_are_readable(build: type[Method]) -> Iterator[str]:
    method = build(trial_model(TWO))
    for name, parameter in hyperparameters(build).items():
        if parameter.default is inspect.Parameter.empty:
            yield f"hyper-parameter {name} has no default"
        elif getattr(method, name, None) != parameter.default:
            yield f"hyper-parameter {name} is not kept as an attribute of that name"


def _labels_stay_out(build: type[Method]) -> Iterator[str]:
    if len(inspect.signature(build.step).parameters) != 2:
        yield "step() takes more than one batch"
    tta = trial(build)
    batch = SyntheticWorld(TWO).draw(4, seed=0)
    try:
        tta({**batch.inputs, "labels": batch.labels})
    except InputError:
        return
    yield "a batch with labels in it is accepted"


def _says_what_it_waits_for(build: type[Method]) -> Iterator[str]:
    waits = {"fit()": build.needs_source, "stream_length": _wants_length(build)}
    if any(waits.values()):
        try:
            adapt(trial_model(TWO), build)(trial_batches(TWO)[0])
        except DaspError:
            return
        missing = " and ".join(name for name, needed in waits.items() if needed)
        yield f"without {missing} it runs and raises no DaspError that asks for it"


def _wants_length(build: type[Method]) -> bool:
    option = hyperparameters(build).get("stream_length")
    return option is not None and option.default is None


def _reset_is_exact(build: type[Method], modalities: tuple[str, ...]) -> Iterator[str]:
    tta, batches = trial(build, modalities, lr=LR), trial_batches(modalities)
    start = tta.memory.capture()
    first = _logits(tta, batches)
    tta.reset()
    if not _same_state(start, tta.memory.capture()):
        yield "reset() does not return to the source state"
    if not _equal(first, _logits(tta, batches)):
        yield "after reset() the same stream gives other logits"


def _rejection_changes_nothing(build: type[Method], modalities: tuple[str, ...]) -> Iterator[str]:
    tta, batches = trial(build, modalities, lr=LR), trial_batches(modalities)
    _logits(tta, batches)
    before = tta.memory.capture()
    for name, value in batches[0].items():
        bad = value.clone()
        bad[0] = torch.nan
        outcome = tta({**batches[0], name: bad})
        if outcome.updated or outcome.rejected is None:
            yield f"NaN in {name} is not rejected"
        if not torch.isfinite(outcome.logits[1:]).all():
            yield f"NaN in one sample of {name} spoils the others' logits"
    if not _same_state(before, tta.memory.capture()):
        yield "a rejected batch changes the state"


def _freezing_changes_nothing(build: type[Method], modalities: tuple[str, ...]) -> Iterator[str]:
    tta, batches = trial(build, modalities, lr=LR), trial_batches(modalities)
    _logits(tta, batches)
    before = tta.memory.capture()
    with tta.frozen():
        first = _logits(tta, batches)
        if not _equal(first, _logits(tta, batches)):
            yield "frozen() gives other logits the second time"
    if not _same_state(before, tta.memory.capture()):
        yield "frozen() changes the state"


def _saved_state_continues(build: type[Method], modalities: tuple[str, ...]) -> Iterator[str]:
    batches = trial_batches(modalities)
    tta = trial(build, modalities, lr=LR)
    _logits(tta, batches)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.safetensors"
        tta.save(path)
        other = trial(build, modalities, lr=LR)
        other.load(path)
    if not _equal(_logits(tta, batches), _logits(other, batches)):
        yield "a saved and loaded state continues with other logits"


def _seed_decides(build: type[Method], modalities: tuple[str, ...]) -> Iterator[str]:
    batches, runs = trial_batches(modalities), []
    for noise in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(noise)
            before = torch.get_rng_state()
            runs.append(_logits(trial(build, modalities, lr=LR, seed=3), batches))
            if not torch.equal(before, torch.get_rng_state()):
                yield "it draws from the global generator"
    if not _equal(*runs):
        yield "the same seed gives other logits"


def _idle_parameters_stay(build: type[Method], modalities: tuple[str, ...]) -> Iterator[str]:
    tta, batches = trial(build, modalities, lr=LR), trial_batches(modalities)
    _logits(tta, batches)  # fills the optimiser's momenta, which would move an idle parameter
    for batch in batches:
        idle = _idle(tta, batch)
        before = tta.memory.capture()
        tta(batch)
        after = tta.memory.capture()
        moved = [
            name for name in idle if not torch.equal(before.tensors[name], after.tensors[name])
        ]
        if moved:
            yield f"moves without a gradient: {', '.join(moved)}"


def _missing_modalities(build: type[Method], modalities: tuple[str, ...]) -> Iterator[str]:
    """Try every non-empty part of the modalities on an adaptation whose optimiser has momenta."""
    for size in range(1, len(modalities)):
        for part in combinations(modalities, size):
            tta, batches = trial(build, modalities, lr=LR), trial_batches(modalities)
            for batch in batches:
                tta(batch)
            try:
                for batch in batches:
                    yield from _on_part(tta, {name: batch[name] for name in part})
            except Exception as error:
                yield f"fails on {' and '.join(part)} alone ({type(error).__name__}: {error})"


def _on_part(tta: Adaptation, batch: Inputs) -> Iterator[str]:
    before, seen = tta.memory.capture().tensors, tta.memory.batch_index
    with tta.frozen():
        tta(batch)
    if set(tta.alone(batch)) != set(batch):
        yield "alone() speaks of a modality that is missing"
    outcome = tta(batch)
    shown = " and ".join(batch)
    if outcome.rejected or not torch.isfinite(outcome.logits).all():
        yield f"gives no prediction from {shown} alone"
    if tta.memory.batch_index != seen + 1:
        yield f"{shown} alone does not count as one batch"
    if outcome.diagnosis is not None and set(outcome.diagnosis.scores) != set(batch):
        yield "its diagnosis scores a modality that is missing"
    after = tta.memory.capture().tensors
    absent = set(tta.method.model.modalities) - set(batch)
    owned = [path for path in before if absent & set(path.replace("/", ".").split("."))]
    moved = [path for path in owned if not torch.equal(before[path], after[path])]
    if moved:
        yield f"{shown} alone moves what belongs to a missing modality: {', '.join(moved)}"


def _idle(tta: Adaptation, batch: Inputs) -> list[str]:
    """Name the weights that get no gradient from this batch, by a copy that runs the step."""
    method = copy.deepcopy(tta.method)
    twin = {n.replace("_model.", "model.", 1): p for n, p in method.named_parameters()}
    weights = {name: twin[name] for name in tta.memory.weights}
    with torch.no_grad():
        tokens = batch if method.tunes_encoder else method.model.encode(batch)
    step = method.step(tokens)
    if step.loss is None:
        return [f"weight/{name}" for name in weights]
    gradients = step.gradients or torch.autograd.grad(
        step.loss, list(weights.values()), allow_unused=True
    )
    pairs = zip(weights, gradients, strict=True)
    return [f"weight/{name}" for name, gradient in pairs if gradient is None]


def _logits(tta: Adaptation, batches: list[Inputs]) -> list[Tensor]:
    return [tta(batch).logits for batch in batches]


def _equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def _same_state(first: Snapshot, second: Snapshot) -> bool:
    same = first.batch_index == second.batch_index and first.tensors.keys() == second.tensors.keys()
    return same and all(
        torch.equal(value.nan_to_num(), second.tensors[name].nan_to_num())
        for name, value in first.tensors.items()
    )


def trial_model(modalities: tuple[str, ...] = TWO) -> nn.Module:
    """Return a toy with one layer in each encoder, so that every method can be tried on it."""
    return Toy(modalities=modalities, depth=1, seed=1)


def trial_batches(modalities: tuple[str, ...] = TWO) -> list[Inputs]:
    """Return batches of 16: clean, each modality shifted, clean."""
    stream = SyntheticWorld(modalities).stream([CLEAN, *modalities, CLEAN], 1, 16, strength=4.0)
    return [batch.inputs for batch in stream]


def trial(
    method: str | type[Method], modalities: tuple[str, ...] = TWO, **options: Any
) -> Adaptation:
    """Adapt a trial model, with a stream's length and source data where the method needs them."""
    build = METHODS[method] if isinstance(method, str) else method
    if "stream_length" in hyperparameters(build):
        options = {"stream_length": len(trial_batches(modalities))} | options
    tta = adapt(trial_model(modalities), build, **options)
    if build.needs_source:
        tta.fit([SyntheticWorld(modalities).draw(SOURCE_SAMPLES, seed=1).inputs])
    return tta


_STATIC: tuple[Callable[[type[Method]], Iterator[str]], ...] = (
    _cites_paper,
    _has_a_version,
    _hyperparameters_are_readable,
    _labels_stay_out,
    _says_what_it_waits_for,
)
_DYNAMIC: tuple[Callable[[type[Method], tuple[str, ...]], Iterator[str]], ...] = (
    _reset_is_exact,
    _rejection_changes_nothing,
    _freezing_changes_nothing,
    _saved_state_continues,
    _seed_decides,
    _idle_parameters_stay,
    _missing_modalities,
)
