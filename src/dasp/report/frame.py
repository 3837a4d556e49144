"""Results as a pandas DataFrame, and names in it as text."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from dasp.bench.results import COST, STREAM, PlanRecord, ResultFolder, read_folder

CLEAN, MISSING = "clean", "missing"


def results(folder: str | Path) -> pd.DataFrame:
    """Return the results of a folder, one row per plan, row label, run and visit of a domain.

    Folders of results below `folder` are read as well. Measurements of cost have no domains and
    are left out. A run that several plans share appears once per plan; a run of no plan has the
    plan "" and its method as label.

    ===========================  ==============================================================
    plan, label                  name of the plan, and of the row that the run belongs to
    method, options              registered name of the method; its options, as JSON
    model, model_digest, seed    source model, its weights and seed of the stream: a replicate
    data, samples                data set and its settings, as text; its number of samples
    protocol, severity           name of the stream, and severity of its corruptions
    batch_size                   number of samples per batch
    visit, domain                0, 1, … along the stream; what is wrong, such as "video/fog/5"
    damaged                      the damaged modality, several joined by "+", or ""
    right, seen, accuracy        number of samples that were right, of all; 100 * right / seen
    key                          of the run
    ===========================  ==============================================================

    >>> import dasp
    >>> frame = dasp.results("results/sound")  # doctest: +SKIP
    >>> frame.groupby(["protocol", "label"])[["right", "seen"]].sum()  # doctest: +SKIP
    """
    found = read_folder(folder)
    records = []
    for plan in [*found.plans, *leftover(found)]:
        for label, key in plan.rows:
            result = found.results.get(key)
            if result is None or result.counts is None:
                continue
            run = result.run
            shared = {
                "plan": plan.name,
                "label": label,
                "method": run.method,
                "options": json.dumps(run.options, sort_keys=True),
                "model": run.model["name"],
                "model_digest": run.model["digest"],
                "seed": run.seed,
                "data": data_text(run.data),
                "samples": run.data["samples"],
                **{name: getattr(run, name) for name in ("protocol", "severity", "batch_size")},
            }
            for visit, domain in enumerate(result.counts.domains):
                place = {"visit": visit, "domain": domain.name, "damaged": damaged(domain.name)}
                share = 100 * domain.right / domain.seen if domain.seen else None
                counts = {"right": domain.right, "seen": domain.seen, "accuracy": share}
                records.append({**shared, **place, **counts, "key": key})
    return pd.DataFrame.from_records(records)


def leftover(found: ResultFolder) -> list[PlanRecord]:
    """Return a record of the runs that belong to no plan, labelled by their methods; or none."""
    planned = {key for plan in found.plans for _, key in plan.rows}
    rows = [(r.run.method, key) for key, r in found.results.items() if key not in planned]
    kinds = {found.results[key].run.kind for _, key in rows}
    show = [n for n, kind in (("comparison", STREAM), ("efficiency", COST)) if kind in kinds]
    about = "Runs in this folder that belong to none of the plans above."
    words = ("other", "Other runs", about) if found.plans else ("", "All runs", "")
    return [PlanRecord(*words, show, "", rows)] if rows else []


def data_text(data: Mapping[str, Any]) -> str:
    """Return the settings of a data set as short text, without its number of samples.

    >>> data_text({"name": "shapes", "split": "test", "samples": 64, "seed": 0})
    'shapes (seed 0), test'
    """
    rest = {k: v for k, v in data.items() if k not in ("name", "split", "samples")}
    more = ", ".join(f"{key} {text(value)}" for key, value in rest.items())
    split = f", {data['split']}" if "split" in data else ""
    return f"{data['name']}{f' ({more})' if more else ''}{split}"


def text(value: Any) -> str:
    """Return an option's value as short text."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def damaged(domain: str) -> str:
    """Return the damaged modalities of a domain, joined by "+", or "" if there are none.

    A modality that is missing is not damaged: nothing of it arrives.

    >>> damaged("video/fog/5+audio/rain/5"), damaged("audio/missing"), damaged("clean")
    ('audio+video', '', '')
    """
    return "+".join(sorted({part[0] for part in _parts(domain) if part[1] != MISSING}))


def absent(domain: str) -> set[str]:
    """Return the modalities that are missing in a domain."""
    return {part[0] for part in _parts(domain) if part[1] == MISSING}


def short_name(domain: str) -> str:
    """Return a domain's name for an axis: the initials of its modalities, and what is wrong.

    >>> short_name("video/gaussian_noise/5"), short_name("audio/constant"), short_name("clean")
    ('V gaussian noise', 'A audio constant', 'clean')
    """
    words = [part[1] if len(part) == 3 else " ".join(part) for part in _parts(domain)]
    initials = "".join(name[0].upper() for name in damaged(domain).split("+") if name)
    return f"{initials} {' + '.join(words) or domain}".replace("_", " ").strip()


def _parts(domain: str) -> list[list[str]]:
    return [] if domain == CLEAN else [part.split("/") for part in domain.split("+")]


def slug(words: str) -> str:
    """Return words as part of a file name.

    >>> slug("Paper/Ablation, batch 64")
    'paper-ablation-batch-64'
    """
    return re.sub(r"[^a-z0-9._]+", "-", words.lower()).strip("-.")
