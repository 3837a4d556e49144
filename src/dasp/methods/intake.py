"""What is looked at before a batch is run: whether it can be, and which of its samples."""

from collections.abc import Iterable, Iterator, Mapping

from torch import Tensor

from dasp.core.contract import check_batch, check_placement
from dasp.core.errors import ContractError, InputError
from dasp.core.types import Inputs, Outcome
from dasp.methods.base import Method
from dasp.methods.engine import Engine
from dasp.methods.finite import finite_rows, spoilt


def checked(batch: Inputs, method: Method, kind: str) -> dict[str, Tensor]:
    """Refuse what the method cannot be given as "inputs" or "tokens"; return a batch that it can.

    Modalities may be missing, but not all of them.
    """
    if kind == "tokens" and method.tunes_encoder:
        raise ContractError(f"{type(method).__name__} tunes the encoder: call it with raw inputs.")
    check_batch(batch, method.model, kind, part=True)
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
    """Check a batch and run it. One with NaN or Inf is refused: the other samples are predicted."""
    batch = checked(batch, engine.method, kind)
    finite = finite_rows(batch)
    if finite.all():
        prepared = batch if kind == "tokens" else engine.prepare(batch)
        return engine.infer(prepared) if frozen else engine.learn(prepared)
    rows: Inputs = {name: value[finite] for name, value in batch.items()}
    if kind == "inputs" and finite.any():
        rows = engine.prepare(rows)
    return engine.infer_rows(rows, finite, spoilt(batch, finite))
