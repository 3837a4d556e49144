"""What is looked at before a batch is run: whether it can be, and which of its samples."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from torch import Tensor

from dasp.core.contract import check_batch, check_placement
from dasp.core.errors import ContractError, InputError
from dasp.core.types import Inputs, Outcome
from dasp.methods.base import Method
from dasp.methods.engine import Engine
from dasp.methods.finite import finite_rows, spoilt
from dasp.methods.group import PeerError, apart


def checked(batch: Inputs, method: Method, kind: str) -> dict[str, Tensor]:
    """Refuse what the method cannot be given as "inputs" or "tokens"; return a batch that it can.

    Modalities may be missing, but not all of them. Where ranks share the stream, one of them may
    have no samples.
    """
    if kind == "tokens" and method.tunes_encoder:
        raise ContractError(f"{type(method).__name__} tunes the encoder: call it with raw inputs.")
    check_batch(batch, method.model, kind, part=True, no_samples=method.group.size > 1)
    check_placement(batch, method._model)
    # A tensor made in inference mode cannot take part in learning; its copy can.
    return {name: v.clone() if v.is_inference() else v for name, v in batch.items()}


def clean_batches(source: Iterable[Inputs], method: Method) -> Iterator[Inputs]:
    """Give the batches of clean samples one by one; refuse what could spoil all that follows."""
    if isinstance(source, Mapping) or not isinstance(source, Iterable):
        raise InputError(
            f"fit() takes batches such as [{{name: tensor}}, …], not {type(source).__name__}: "
            "put one batch into a list."
        )
    for batch in source:
        if not isinstance(batch, Mapping):
            raise InputError(
                f"a batch of fit() is a dict of tensors by modality, not {type(batch).__name__}: "
                "leave the labels out."
            )
        check_batch(batch, method.model)
        check_placement(batch, method._model)
        finite = finite_rows(batch)
        if not finite.all():
            raise InputError(f"clean samples must be finite: {spoilt(batch, finite)}.")
        yield batch


def run(engine: Engine, batch: Inputs, kind: str, frozen: bool) -> Outcome:
    """Check a batch and run it. One with NaN or Inf is refused: the other samples are predicted.

    If another rank fails, this one's samples are predicted by themselves, and nothing is learnt.
    """
    try:
        with engine.method.group.together():
            return _run(engine, checked(batch, engine.method, kind), kind, frozen)
    except PeerError as error:
        with apart(engine.method):
            outcome = _run(engine, batch, kind, frozen=True)
        return replace(outcome, rejected=str(error))


def alone(engine: Engine, batch: Inputs, kind: str) -> dict[str, Tensor]:
    """Check a batch and predict from each of its modalities by itself: {name: (B, C)} logits."""
    with engine.method.group.together():
        batch = checked(batch, engine.method, kind)
        _meet(engine, batch, f"{kind} alone")
        return engine.alone(batch if kind == "tokens" else engine.prepare(batch))


def _run(engine: Engine, batch: Inputs, kind: str, frozen: bool) -> Outcome:
    group = engine.method.group
    _meet(engine, batch, f"{kind}, frozen" if frozen else kind)
    own = finite_rows(batch)
    finite = group.gather(own)
    if len(finite) and finite.all():
        prepared = batch if kind == "tokens" else engine.prepare(batch)
        return engine.infer(prepared) if frozen else engine.learn(prepared)
    rows: Inputs = {name: value[own] for name, value in batch.items()}
    if kind == "inputs" and finite.any():
        rows = engine.prepare(rows)
    why = spoilt(batch, own, finite) if len(finite) else "no rank has any samples"
    return engine.infer_rows(rows, finite, why)


def _meet(engine: Engine, batch: Inputs, kind: str) -> None:
    """Begin a call, in which all ranks must be given the same and be in the same state."""
    memory = engine.memory
    facts = {"the kind of the call": kind, "the order of modalities": list(batch)}
    engine.method.group.meet(
        lambda: facts | {"batches learnt": memory.batch_index, "weights": memory.checksum()},
        len(next(iter(batch.values()))),
    )
