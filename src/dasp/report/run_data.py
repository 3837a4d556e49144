"""The numbers of every run, small enough that one page holds hundreds of runs.

The page keeps them as JSON and draws a run when a reader opens it (`run_page.js`). What many runs
share (the domains of a stream, the data, the machine) stands there once.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from dasp.report.runs import Run
from dasp.report.sections import Section
from dasp.report.stream_data import stops
from dasp.report.tables import pretty

SCORE = 10_000  # a score is kept as a whole number of ten-thousandths


class Shared:
    """Values that several runs have in common, each kept once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[str, int] = {}

    def place(self, value: Any) -> int:
        """Return where a value is kept."""
        text = json.dumps(value, sort_keys=True)
        if text not in self._places:
            self._places[text] = len(self.values)
            self.values.append(value)
        return self._places[text]


def runs_by_key(sections: Iterable[Section]) -> dict[str, tuple[Run, list[int]]]:
    """Return each run once, with the places of the sections that it belongs to."""
    found: dict[str, tuple[Run, list[int]]] = {}
    for place, section in enumerate(sections):
        for run in section.runs:
            found.setdefault(run.key, (run, []))[1].append(place)
    return found


def run_data(sections: Sequence[Section]) -> dict[str, Any]:
    """Return the runs of all sections as plain data, ready for JSON."""
    streams, settings = Shared(), Shared()
    runs = {
        key: _one(run, streams, settings) | {"sections": places}
        for key, (run, places) in runs_by_key(sections).items()
    }
    titles = [(section_id(section), section.plan.title) for section in sections]
    return {
        "sections": titles,
        "streams": streams.values,
        "settings": settings.values,
        "runs": runs,
    }


def section_id(section: Section) -> str:
    """Return the name of a section in an address of the page."""
    return f"plan-{section.name}"


def _one(run: Run, streams: Shared, settings: Shared) -> dict[str, Any]:
    batches = run.batches
    domains = [
        (domain.name, domain.damaged, domain.first_batch, domain.batches) for domain in run.domains
    ]
    setting = {
        "data": run.data,
        "batch size": run.batch_size,
        "severity": run.severity,
        "machine": run.measured.get("machine"),
        "versions": run.measured.get("versions"),
    }
    cost = ("seconds", "samples_per_second", "peak_mib", "finished")
    return {
        "label": run.label,
        "method": run.method,
        "protocol": pretty(run.protocol),
        "replicate": run.replicate_name,
        "digest": run.replicate[1],
        "stream": streams.place(
            {"domains": domains, "stops": stops(run), "seen": list(batches.seen)}
        ),
        "setting": settings.place(setting),
        "options": dict(run.options),
        "right": list(batches.right),
        "updated": lengths(batches.updated),
        "rejected": [(n, reason) for n, reason in enumerate(batches.rejected) if reason],
        "rollbacks": list(run.rollbacks),
        "scores": _scores(batches.scores or {}),
        "named": _named(run),
        "clean": run.clean_after and {"seen": run.clean_after.seen, **run.clean_after.right},
        "skipped": list(run.skipped),
        "cost": {name: run.measured[name] for name in cost if name in run.measured},
    }


def lengths(flags: Sequence[bool]) -> list[int]:
    """Return how long false and true take turns, beginning with false.

    >>> lengths([True, True, False])
    [0, 2, 1]
    """
    turns = [(value, len(list(entries))) for value, entries in groupby(map(bool, flags))]
    first = [0] if turns and turns[0][0] else []
    return first + [length for _, length in turns]


def _scores(scores: Mapping[str, Sequence[float | None]]) -> dict[str, list[int | None]]:
    return {
        name: [
            round(SCORE * value) if value is not None and math.isfinite(value) else None
            for value in values
        ]
        for name, values in sorted(scores.items())
    }


def _named(run: Run) -> dict[str, list[int]]:
    """Return for each modality with scores in which batches it was named."""
    biased = run.batches.biased
    if biased is None:
        return {}
    return {
        name: lengths([name in (names or ()) for names in biased])
        for name in sorted(run.batches.scores or {})
    }
