"""The contract that every method keeps, as a check that anyone can run on theirs."""

import copy
import inspect
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from dasp.bench.missing_check import missing_modalities_are_handled
from dasp.bench.trial import THREE, TWO, trial, trial_batches, trial_model
from dasp.core.errors import ContractError, DaspError, InputError
from dasp.core.types import Inputs
from dasp.methods import METHODS, Adaptation, Method, adapt, hyperparameters
from dasp.methods.state import Snapshot
from dasp.streams.synthetic import SyntheticWorld

LR = 1e-2  # large, so that whatever may move is seen to move


def check_method(method: str | type[Method]) -> None:
    """Run the contract check on a registered name or a class; raise with all that is broken.

    Checked on models of two and of three modalities (a method may refuse three, by a
    `ContractError`): reset, rejection, freezing, saving, seeds, parameters that take no part,
    missing modalities, labels kept out, hyper-parameters readable, and a docstring that names its
    paper. A method that needs source data (`needs_source`) or has an option `stream_length` is
    given them, and must say so by an error of this library where it is not.

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
    yield from missing_modalities_are_handled(build, modalities, LR)


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


_STATIC: tuple[Callable[[type[Method]], Iterator[str]], ...] = (
    _cites_paper,
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
