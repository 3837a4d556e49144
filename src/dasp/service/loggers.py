"""Send the figures of a running adaptation to TensorBoard, Weights & Biases or MLflow.

    with open_logger("tensorboard", "runs", "dasp") as logger:
        for step, inputs in enumerate(stream):
            logger.log(step, outcome_figures(tta(inputs)))

`dasp log` does the same from outside, with the event log of any process or the results of a
benchmark. A tracker of your own is a class with `log` and `close`.
"""

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from dasp.core.errors import OptionError, unknown_name
from dasp.core.extras import extra
from dasp.core.types import Outcome
from dasp.service.events import Event

Figures = Mapping[str, float]


class RunLogger(AbstractContextManager["RunLogger"]):
    """One run in a tracker."""

    @abstractmethod
    def __init__(self, folder: Path, name: str, settings: Mapping[str, str]) -> None:
        """Begin a run of that name with its settings, in files below a directory."""

    @abstractmethod
    def log(self, step: int, figures: Figures, when: float | None = None) -> None:
        """Record figures at a step that took place at a time in seconds since 1970, now or then."""

    @abstractmethod
    def close(self) -> None:
        """End the run; everything is on the disk."""

    def __exit__(self, *_: object) -> None:
        self.close()


class TensorBoardLogger(RunLogger):
    """A directory of events, shown by `tensorboard --logdir FOLDER`."""

    def __init__(self, folder: Path, name: str, settings: Mapping[str, str]) -> None:
        self._writer = extra("torch.utils.tensorboard", "loggers").SummaryWriter(str(folder / name))
        rows = "\n".join(f"| {key} | {value} |" for key, value in settings.items())
        self._writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}")

    def log(self, step: int, figures: Figures, when: float | None = None) -> None:
        """Record figures at a step."""
        for key, value in figures.items():
            self._writer.add_scalar(key, value, step, when)

    def close(self) -> None:
        """End the run."""
        self._writer.close()


class WandbLogger(RunLogger):
    """A run of Weights & Biases; offline in the directory unless WANDB_MODE says otherwise."""

    def __init__(self, folder: Path, name: str, settings: Mapping[str, str]) -> None:
        self._wandb = extra("wandb", "loggers")
        folder.mkdir(parents=True, exist_ok=True)
        mode = os.environ.get("WANDB_MODE", "offline")
        self._run = self._wandb.init(
            dir=str(folder), project="dasp", name=name, config=dict(settings), mode=mode
        )

    def log(self, step: int, figures: Figures, when: float | None = None) -> None:
        """Record figures at a step."""
        self._run.log({**figures, **({} if when is None else {"_timestamp": when})}, step=step)

    def close(self) -> None:
        """End the run."""
        self._run.finish()
        self._wandb.teardown()  # its own process writes the last figures when it ends


class MlflowLogger(RunLogger):
    """A run of MLflow, in the directory, or at $MLFLOW_TRACKING_URI if it is set."""

    def __init__(self, folder: Path, name: str, settings: Mapping[str, str]) -> None:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # files need no database
        mlflow = extra("mlflow", "loggers")
        place = os.environ.get("MLFLOW_TRACKING_URI") or folder.resolve().as_uri()
        self._client = mlflow.MlflowClient(place)
        known = self._client.get_experiment_by_name("dasp")
        where = known.experiment_id if known else self._client.create_experiment("dasp")
        self._run = self._client.create_run(where, run_name=name).info.run_id
        for key, value in settings.items():
            self._client.log_param(self._run, key, value)

    def log(self, step: int, figures: Figures, when: float | None = None) -> None:
        """Record figures at a step."""
        milliseconds = None if when is None else int(1000 * when)
        for key, value in figures.items():
            self._client.log_metric(self._run, key, value, milliseconds, step)

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self._run)


LOGGERS: Mapping[str, type[RunLogger]] = {
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
    "mlflow": MlflowLogger,
}


def open_logger(
    tracker: str, folder: str | Path, name: str, settings: Mapping[str, Any] | None = None
) -> RunLogger:
    """Begin a run in a tracker: "tensorboard", "wandb" or "mlflow"."""
    if tracker not in LOGGERS:
        raise OptionError(unknown_name("tracker", tracker, LOGGERS))
    said = {key: str(value) for key, value in (settings or {}).items()}
    return LOGGERS[tracker](Path(folder), name, said)


def outcome_figures(outcome: Outcome) -> dict[str, float]:
    """Return the figures of one call: scores and flags by modality, loss, what became of it."""
    found = outcome.diagnosis
    event: Event = {name: getattr(outcome, name) for name in ("updated", "loss")}
    event |= {name: getattr(outcome, name) for name in ("rejected", "rollback")}
    event |= {"scores": found and found.scores, "biased": found and found.biased}
    return event_figures(event)


def event_figures(event: Event) -> dict[str, float]:
    """Return the figures of a "batch" in an event log.

    >>> figures = event_figures({"updated": True, "scores": {"audio": 0.1}, "biased": ["audio"]})
    >>> figures["score/audio"], figures["biased/audio"], figures["updated"], figures["rejected"]
    (0.1, 1.0, 1.0, 0.0)
    """
    return dict(_figures(event))


def _figures(event: Event) -> Iterator[tuple[str, float]]:
    for name, score in (event.get("scores") or {}).items():
        if score is not None:
            yield f"score/{name}", float(score)
        yield f"biased/{name}", float(name in (event.get("biased") or ()))
    for name, norm in (event.get("norms") or {}).items():
        if norm is not None:
            yield f"norm/{name}", float(norm)
    for present, names in enumerate((event.get("missing"), event.get("present"))):
        for name in names or ():
            yield f"missing/{name}", 1.0 - present
    if event.get("loss") is not None:
        yield "loss", float(event["loss"])
    for name in ("updated", "rejected", "rollback"):
        yield name, float(bool(event.get(name)))
