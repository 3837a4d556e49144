"""The command `dasp log`."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dasp.core.errors import DataError
from dasp.service.events import Event, read
from dasp.service.loggers import event_figures, open_logger

POLL = 1.0  # seconds between two looks at a log that is followed


def log(
    source: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="SOURCE")]],
    to: Literal["tensorboard", "wandb", "mlflow"] = "tensorboard",
    folder: Path = Path("runs"),
    name: str | None = None,
    follow: bool = False,
) -> None:
    """Send an event log, or the results of a benchmark, to a tracker.

    Of an event log one run is made, with scores, flags, norms and loss by batch. Of a directory of
    results each stream of each method is a run, with its accuracy by visit of a domain.

    Args:
        source: An event log, or a directory that `dasp bench --results` has written.
        to: The tracker: tensorboard, wandb (offline, or as WANDB_MODE says) or mlflow.
        folder: Directory that the tracker's files are written to.
        name: Name of the run; by default that of the log's directory.
        follow: Keep sending what a running process appends to its log, until Ctrl-C.
    """
    if source.is_dir():
        _send_results(source, to, folder)
    elif source.is_file():
        _send_events(source, to, folder, name or source.resolve().parent.name, follow)
    else:
        raise DataError(f"no event log and no directory of results at {source}.")


def _send_events(source: Path, to: str, folder: Path, name: str, follow: bool) -> None:
    events = read(source)
    start = next((one for one in events if one["event"] == "start"), {})
    settings = {"method": start.get("method", ""), **(start.get("hyper") or {})}
    sent = 0
    with open_logger(to, folder, name, settings) as logger:
        for event in _batches(source, events, follow):
            logger.log(event["batch"], event_figures(event), event.get("time"))
            sent += 1
    print(f"sent {sent} batches of {source} to {to} in {folder}")


def _batches(source: Path, events: list[Event], follow: bool) -> Iterator[Event]:
    """Yield the batches of a log in order, each once; a resumed run repeats none of them."""
    last = -1
    while True:
        for event in events:
            if event["event"] == "batch" and event["batch"] > last:
                last = event["batch"]
                yield event
        if not follow:
            return
        try:
            time.sleep(POLL)
            events = read(source)
        except KeyboardInterrupt:
            return


def _send_results(source: Path, to: str, folder: Path) -> None:
    from dasp.report.frame import results  # needs the extra "bench"

    frame, runs = results(source), 0
    settings = ["plan", "label", "method", "options", "model", "seed", "data", "protocol",
                "severity", "batch_size", "samples"]  # fmt: skip
    for key, rows in frame.groupby(["plan", "label", "key"], sort=False):
        first = rows.iloc[0]
        name = "-".join(str(first[part]) for part in ("label", "protocol", "model", "seed"))
        said = {part: first[part] for part in settings} | {"key": key[2]}
        name = f"{name}-{str(key[2])[:8]}".replace("/", ":")
        with open_logger(to, folder, name, said) as logger:
            for row in rows.itertuples():
                logger.log(int(row.visit), {"accuracy": float(row.accuracy)})
            total = 100 * float(rows["right"].sum()) / float(rows["seen"].sum())
            logger.log(0, {"mean_accuracy": total})
        runs += 1
    print(f"sent {runs} runs of {source} to {to} in {folder}")
