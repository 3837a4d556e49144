"""The commands `dasp serve` and `dasp replay`."""

import json
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from safetensors.torch import load_file
from torch import Tensor

from dasp import serve as room
from dasp.bench.references import absolute, find_method, find_model
from dasp.core.devices import find_device
from dasp.core.errors import InputError, OptionError, StateError
from dasp.core.files import atomic_path
from dasp.methods import Adaptation, adapt
from dasp.serve.journal import segments
from dasp.serve.worker import WorkerOptions

SETTINGS = "settings.json"


@dataclass(frozen=True)
class AdaptOptions:
    """What is served."""

    model: str
    """A packaged model, a file of weights, or file.py:function, which returns a model."""
    method: str = "dasp"
    """A registered method, or your own as file.py:Class."""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="OPTION=VALUE")] = ()
    """Options of dasp.adapt and of the method, such as lr=1e-3 or variant=paper."""
    fit: Path | None = None
    """Clean source samples for methods that are fitted: a .safetensors file, (N, …) by modality."""
    threads: int = 1
    """Processor threads of torch; another number may round differently."""
    device: str = "cpu"
    """Where the model runs: auto, cpu, cuda, cuda:1 or mps. A replay runs on the same."""


def serve(
    options: Annotated[AdaptOptions, tyro.conf.arg(name="")],
    folder: Path = Path("served"),
    state: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8720,
    window: float = 20.0,
    samples: int = 64,
    waiting: int = 256,
    checkpoint_every: int = 50,
    keep: int = 8,
    hang: float = 60.0,
    max_bytes: int = 64 * 2**20,
    timeout: float = 60.0,
) -> None:
    """Serve an adapting model over HTTP until Ctrl-C; run it again to continue after a kill.

    Clients need the token in FOLDER/token, or that of the environment variable DASP_TOKEN.

    Args:
        folder: Directory of the journal, the checkpoints and the event log.
        state: A saved state to begin with; not used if FOLDER already has a stream.
        host: Address to listen at.
        port: Port to listen at; 0 takes any free one.
        window: Milliseconds that a request waits for others to join its batch.
        samples: Samples per batch at most; a request may not have more.
        waiting: Requests that may wait; more are answered with 503.
        checkpoint_every: Batches between two checkpoints.
        keep: Checkpoints that are kept, each with the batches after it; 0 keeps all.
        hang: Seconds after which /healthz reports a batch that still runs.
        max_bytes: Largest body of a request.
        timeout: Seconds that a request waits for its answer.
    """
    from dasp.serve.app import WebOptions

    worker = WorkerOptions(window / 1000, samples, waiting, checkpoint_every, keep or None, hang)
    _keep_settings(folder, options)
    tta = build(options, folder / "events.jsonl")
    if state is not None and not segments(folder):
        tta.load(state)
    web = WebOptions(max_bytes, timeout)
    room.serve(tta, folder, host=host, port=port, options=worker, web=web)


def replay(folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="FOLDER")]]) -> int:
    """Run the batches of a served stream again, and compare every answer bit for bit.

    Args:
        folder: The directory that `dasp serve --folder` was given.
    """
    path = folder / SETTINGS
    if not path.is_file():
        raise OptionError(f"no {path}: give the directory of `dasp serve --folder`.")
    told = json.loads(path.read_text())
    fit = told.pop("fit")
    options = AdaptOptions(**told | {"settings": tuple(told["settings"]), "fit": fit and Path(fit)})
    report = room.replay(build(options, None), folder)
    print(report)
    return 1 if report.differing else 0


def build(options: AdaptOptions, log: Path | None) -> Adaptation:
    """Return the adaptation that the options describe, fitted if they say so."""
    torch.set_num_threads(options.threads)
    method: Any = find_method(options.method) if ".py:" in options.method else options.method
    hyper, device = dict(map(_setting, options.settings)), find_device(options.device)
    tta = adapt(find_model(options.model).to(device), method, log=log, **hyper)
    if options.fit is not None:
        tta.fit(_clean_batches(options.fit, device))
    return tta


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise OptionError(f"--set takes OPTION=VALUE, such as lr=1e-3, not {text!r}.")
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, value  # a plain word


def _clean_batches(path: Path, device: torch.device, size: int = 64) -> list[dict[str, Tensor]]:
    try:
        samples = load_file(path)
    except Exception as error:
        raise InputError(f"{path} is not a safetensors file of clean samples: {error}.") from error
    count = max(map(len, samples.values()), default=0)
    return [
        {name: own[start : start + size].to(device) for name, own in samples.items()}
        for start in range(0, count, size)
    ]


def _keep_settings(folder: Path, options: AdaptOptions) -> None:
    """Write down what is served; refuse to continue a stream with other settings."""
    said = asdict(options) | {"settings": list(options.settings)}
    said |= {"model": absolute(options.model), "method": absolute(options.method)}
    said["fit"] = options.fit and str(options.fit.resolve())
    path = folder / SETTINGS
    if path.is_file():
        then = json.loads(path.read_text())
        if other := [
            f"{n} {then.get(n)!r}, now {v!r}" for n, v in said.items() if then.get(n) != v
        ]:
            raise StateError(
                f"{folder} holds a stream of other settings ({'; '.join(other)}): use those, or "
                "another --folder."
            )
    with atomic_path(path) as part:
        part.write_text(json.dumps(said, indent=2) + "\n")
