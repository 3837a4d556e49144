"""Batches and outcomes as bytes: what a client sends, what a server answers and writes down.

A batch is a safetensors file, an npz file or JSON. Answers are JSON: a float32 survives it bit for
bit, and a number that is not finite is null.
"""

import io
import json
import math
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from dasp.core.errors import InputError, cause
from dasp.core.types import Diagnosis, Inputs, Outcome

SAFETENSORS, NPZ, JSON = "application/x-safetensors", "application/x-npz", "application/json"
KINDS = (SAFETENSORS, NPZ, JSON)
FIGURES = ("scores", "differences", "probability")  # of a diagnosis, by modality
TEXTS = ("rejected", "rollback", "skipped")
REMEDY = "send {modality: array of shape (B, ...)}"


def pack(tensors: Inputs, **texts: str) -> bytes:
    """Return tensors and texts as the bytes of a safetensors file."""
    return save({name: own.detach().cpu().contiguous() for name, own in tensors.items()}, texts)


def unpack(data: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and texts that `pack` was given."""
    try:
        tensors = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(f"not a safetensors file: {cause(error)}.") from error
    return tensors, header.get("__metadata__") or {}


def read_batch(body: bytes, kind: str, dtype: torch.dtype, limit: int) -> dict[str, Tensor]:
    """Return the tensors of a request's body.

    Args:
        body: the bytes of the request.
        kind: its content type, one of `KINDS`.
        dtype: what the numbers of a JSON body become; the other kinds have types of their own.
        limit: bytes that an npz file may have when it is uncompressed.
    """
    kind = kind.partition(";")[0].strip().lower()
    if kind not in KINDS:
        raise InputError(f"the content type is {kind or 'missing'!r}: use {' or '.join(KINDS)}.")
    if kind == SAFETENSORS:
        return unpack(body)[0]
    try:
        return _from_npz(body, limit) if kind == NPZ else _from_json(body, dtype)
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, RuntimeError,
            OSError, EOFError, NotImplementedError, zipfile.BadZipFile) as error:  # fmt: skip
        what = "an npz file" if kind == NPZ else "a batch in JSON"
        raise InputError(f"the body is not {what}: {cause(error)}; {REMEDY}.") from error


def _from_npz(body: bytes, limit: int) -> dict[str, Tensor]:
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > limit:
        raise InputError(f"the arrays take {size:,} bytes, at most {limit:,} are taken: send less.")
    with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def _from_json(body: bytes, dtype: torch.dtype) -> dict[str, Tensor]:
    found = json.loads(body)
    inputs = found.get("inputs") if isinstance(found, dict) else None
    if not isinstance(inputs, dict):
        raise InputError('a batch in JSON is {"inputs": {modality: nested lists}}.')
    return {name: torch.tensor(values, dtype=dtype) for name, values in inputs.items()}


def outcome_facts(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome without its logits, ready for JSON."""
    found = outcome.diagnosis
    diagnosis = found and {
        **{name: _finite_values(getattr(found, name)) for name in FIGURES},
        "biased": sorted(found.biased),
    }
    facts: dict[str, Any] = {"updated": outcome.updated, "diagnosis": diagnosis}
    facts |= {"loss": finite(outcome.loss), "lr": finite(outcome.lr)}
    return facts | {name: getattr(outcome, name) for name in TEXTS}


def outcome_json(logits: Tensor, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return some rows of an outcome, ready for JSON; `prediction` is null where there is none."""
    finite_rows = torch.isfinite(logits).all(dim=1).tolist()
    classes = logits.argmax(1).tolist()
    best = [row if good else None for row, good in zip(classes, finite_rows, strict=True)]
    rows = [[finite(value) for value in row] for row in logits.tolist()]
    return {"predictions": best, "logits": rows, **facts}


def outcome_from_json(found: Mapping[str, Any]) -> Outcome:
    """Return the outcome that an answer describes."""
    rows = [[math.nan if value is None else value for value in row] for row in found["logits"]]
    told = found["diagnosis"]
    figures = told and {name: _numbers(told[name]) for name in FIGURES}
    diagnosis = told and Diagnosis(biased=frozenset(told["biased"]), **figures)
    named = {name: found[name] for name in ("updated", "loss", "lr", *TEXTS)}
    return Outcome(torch.tensor(rows), diagnosis, **named)


def _finite_values(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: finite(value) for name, value in values.items()}


def _numbers(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in values.items()}


def finite(value: float | None) -> float | None:
    """Return a number as it is, or None for one that JSON has no word for."""
    return value if value is not None and math.isfinite(value) else None
