"""How many single samples pass from a change to the diagnosis that names it, and back.

    python studies/diagnosis/delays.py --views out/studies/diagnosis/views/test

Reads the views that `trust.py --measure` writes. Samples arrive one at a time, in random order and
with the queue of 128: 96 clean ones, 32 with one modality damaged, 32 clean ones again. Counted are
the samples until exactly the damaged modality is flagged, and then until none is, one stream for
every damage that costs two points.
"""

import argparse
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from trust import COSTLY, KEYS, Watched, _alone, _summary, kind_of, markdown

from dasp.core.seeding import numpy_generator
from dasp.methods.diagnosis import Diagnoser

BEFORE, DURING, AFTER = 96, 32, 32


def delays(watched: Watched, damaged: str, domain: Path) -> tuple[float, float]:
    """Return the samples until a damage is named, and until it is forgotten; inf if never."""
    diagnoser: Diagnoser = watched.diagnoser
    diagnoser.queue, diagnoser.recent = 128, torch.zeros(0, 0, 0, dtype=torch.float64)
    arrays = np.load(domain)
    own = {key: arrays[f"{damaged}.{key}"][watched.rest] for key in KEYS}
    draws = numpy_generator(0, "delays", domain.stem)
    named = forgotten = np.inf
    for place, row in enumerate(draws.integers(len(watched.labels), size=BEFORE + DURING + AFTER)):
        views = {name: {k: v[k][[row]] for k in KEYS} for name, v in watched.clean.items()}
        if BEFORE <= place < BEFORE + DURING:
            views[damaged] = {key: values[[row]] for key, values in own.items()}
        seen = {name: _summary(view) for name, view in views.items()}
        flagged = diagnoser(seen, _alone(views), remember=True).biased
        if flagged == {damaged} and BEFORE <= place < BEFORE + DURING:
            named = min(named, place - BEFORE + 1)
        if not flagged and place >= BEFORE + DURING:
            forgotten = min(forgotten, place - BEFORE - DURING + 1)
    return named, forgotten


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--views", type=Path, default=Path("out/studies/diagnosis/views/test"))
    parser.add_argument("--models", nargs="+", help="only these")
    parser.add_argument("--fit", type=int, default=512)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    # Views have summaries of tokens, not the tokens.
    with patch("dasp.methods.diagnosis.summaries", lambda seen: seen):
        for folder in sorted(f for f in options.views.iterdir() if f.is_dir()):
            if options.models and folder.name not in options.models:
                continue
            watched = Watched(folder, options.fit, 0)
            for stem, modality, cost, _ in watched.domains():
                if cost >= COSTLY:
                    path = folder / f"{stem}.npz"
                    rows.append((kind_of(folder.name), *delays(watched, modality, path)))
            print(folder.name, flush=True)
    table = []
    for name, own in pd.DataFrame(rows, columns=["set", "named", "forgotten"]).groupby("set"):
        row: dict[str, object] = {"set": name, "streams": len(own)}
        for kind in ("named", "forgotten"):
            row[f"{kind}: median"] = f"{own[kind].median():.0f}"
            row[f"{kind} within 10"] = f"{100 * (own[kind] <= 10).mean():.0f}%"
            row[f"{kind} within 32"] = f"{100 * (own[kind] <= 32).mean():.0f}%"
        table.append(row)
    print("\n" + markdown(pd.DataFrame(table)))


if __name__ == "__main__":
    main()
