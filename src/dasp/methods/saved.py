"""A state outside the process: one plain dict, and the safetensors file that holds it.

    {"format", "method", "hyper": {option: text}, "model": hash of the source weights,
     "batch_index": batches since the last reset, "counters": of the run so far,
     "tensors": {"weight/…", "buffer/…", "optimizer/<weight>/<key>"} on the CPU}

It holds no part of the model but the weights that the method trains, so it is small beside it.
"""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dasp.core.errors import StateError
from dasp.core.files import atomic_path
from dasp.methods.base import METHODS, Method, hyperparameters
from dasp.methods.state import Memory, Snapshot

FORMAT = "dasp-state-1"
OTHER = {"method": "another method", "hyper": "other options", "model": "another model"}
State = dict[str, Any]


def take(memory: Memory, source: Snapshot, counters: dict[str, Any]) -> State:
    """Copy the present state, with what it belongs to."""
    now = memory.capture()
    return {
        "format": FORMAT,
        **_belonging(memory, source),
        "batch_index": now.batch_index,
        "counters": counters,
        "tensors": {name: value.cpu().contiguous() for name, value in now.tensors.items()},
    }


def checked(state: State, memory: Memory, source: Snapshot, where: str) -> Snapshot:
    """Refuse a state that belongs to another method or model, calling it `where`."""
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise StateError(f"{where} is not a saved state (format {found!r}).")
    for key, value in _belonging(memory, source).items():
        if state.get(key) != value:
            difference = _difference(state.get(key, ""), value)
            raise StateError(
                f"{where} was saved with {OTHER[key]}: {difference}. Load it into an adaptation "
                "with the same method, hyper-parameters and source weights."
            )
    if not isinstance(state.get("batch_index"), int) or not isinstance(state.get("tensors"), dict):
        raise StateError(f"{where} lacks its batch_index or its tensors: take another copy.")
    _check_tensors(where, state["tensors"], memory)
    return Snapshot(state["tensors"], state["batch_index"])


def write(path: str | Path, state: State) -> None:
    """Write a state to one file that is whole and on the disk when this returns."""
    texts = {key: value for key, value in state.items() if key != "tensors"}
    metadata = {k: v if isinstance(v, str) else json.dumps(v) for k, v in texts.items()}
    with atomic_path(path, durable=True) as part:
        try:
            save_file(state["tensors"], part, metadata=metadata)
        except SafetensorError as error:
            raise OSError(f"{path} could not be written: {error}") from error


def read(path: str | Path) -> State:
    """Read a state from a file; whether it belongs here is for `checked` to say."""
    path = Path(path)
    if not path.is_file():
        raise StateError(f"no saved state at {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            state: State = dict(file.metadata() or {})
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        for key in ("hyper", "batch_index", "counters"):
            if key in state:
                state[key] = json.loads(state[key])
    except (SafetensorError, OSError, ValueError) as error:
        raise StateError(f"{path} is damaged or not a saved state: {error}.") from error
    return state | {"tensors": tensors}


def _belonging(memory: Memory, source: Snapshot) -> State:
    return {**about(memory.method), "model": memory.fingerprint(source)}


def about(method: Method) -> State:
    """Say which method this is, and its hyper-parameters as texts."""
    known = {METHODS[name]: name for name in METHODS}
    hyper = {name: repr(getattr(method, name, None)) for name in hyperparameters(type(method))}
    return {"method": known.get(type(method), type(method).__qualname__), "hyper": hyper}


def _difference(saved: Any, here: Any) -> str:
    """Say how two settings differ: by option where they are maps, shortened where they are long."""
    if isinstance(saved, dict) and isinstance(here, dict):
        names = sorted(n for n in saved.keys() | here.keys() if saved.get(n) != here.get(n))
        return ", ".join(f"{name} {saved.get(name)}, here {here.get(name)}" for name in names)
    return f"{str(saved)[:12]}, here {str(here)[:12]}"


def _check_tensors(where: str, tensors: dict[str, Tensor], memory: Memory) -> None:
    wanted = {f"weight/{name}": value.shape for name, value in memory.weights.items()}
    missing = [name for name in wanted if name not in tensors]
    missing += [f"buffer/{n}" for n in memory.buffers() if f"buffer/{n}" not in tensors]
    wrong = [name for name, value in tensors.items() if not isinstance(value, Tensor)]
    wrong += [
        name
        for name, shape in wanted.items()
        if name in tensors and name not in wrong and tensors[name].shape != shape
    ]
    strange = [
        name
        for name in tensors
        if name.startswith("optimizer/")
        and name.removeprefix("optimizer/").rsplit("/", 1)[0] not in memory.weights
    ]
    if missing or wrong or strange:
        raise StateError(f"{where} does not fit: {', '.join(missing + wrong + strange)}.")
