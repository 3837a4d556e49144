"""Check a journal: run its batches again and compare every answer, bit for bit."""

from dataclasses import dataclass
from pathlib import Path

import torch

from dasp.core.errors import DataError
from dasp.methods import Adaptation
from dasp.methods.state import read_state
from dasp.serve.journal import JournalSegment, read_records, segments
from dasp.serve.worker import run_again, turns


@dataclass(frozen=True)
class ReplayReport:
    """What a replay has found."""

    segments: int
    batches: int
    requests: int
    errors: int  # batches that had ended in an error, and changed nothing
    unanswered: int  # batches without an answer: the process was killed while it ran them
    differing: tuple[int, ...]  # numbers of the batches whose answer or state was another one

    def __str__(self) -> str:
        verdict = "all answers are the same, bit for bit"
        if self.differing:
            shown = ", ".join(map(str, self.differing[:8])) + ", …" * (len(self.differing) > 8)
            verdict = f"{len(self.differing)} differ: {shown}"
        return (
            f"{self.batches} batches of {self.requests} requests in {self.segments} segments, "
            f"{self.errors} errors, {self.unanswered} unanswered: {verdict}"
        )


def replay(tta: Adaptation, folder: str | Path) -> ReplayReport:
    """Run the batches of a journal from its oldest kept state, and compare answers and states.

    `tta` is an adaptation of the same model with the same options; its state is replaced. The
    journal is only read. A server may have it open: what it has written by now is replayed.
    """
    found = segments(folder)
    if not found:
        raise DataError(f"no journal in {folder}: give the directory of `dasp serve --folder`.")
    batches = requests = errors = unanswered = 0
    differing: list[int] = []
    for place, segment in enumerate(found):
        number = int(segment.begin["batches"])
        if place == 0 or segment.begin["cause"] != "checkpoint":
            tta.load(segment.state)
        elif not _same_state(tta, segment):
            differing.append(number)
        for batch, _, answer in turns(read_records(segment.records)):
            if not run_again(tta, batch, answer):
                differing.append(number)
            number, batches = number + 1, batches + 1
            requests += len(batch.facts["requests"])
            unanswered += answer is None
            errors += answer is not None and "error" in answer.facts
    return ReplayReport(len(found), batches, requests, errors, unanswered, tuple(differing))


def _same_state(tta: Adaptation, segment: JournalSegment) -> bool:
    ours, theirs = tta.state()["tensors"], read_state(segment.state)["tensors"]
    return ours.keys() == theirs.keys() and all(
        torch.equal(value.nan_to_num(), theirs[name].nan_to_num()) for name, value in ours.items()
    )
