"""A folder of results: the runs and other measurements in it, and the plans they belong to."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from dasp.bench.efficiency import FORMAT as EFFICIENCY
from dasp.bench.flags import FORMAT as FLAGS
from dasp.bench.indicators import FORMAT as INDICATORS
from dasp.bench.kinds import RECORD
from dasp.core.errors import InputError
from dasp.report.efficiencies import Efficiency, efficiency_of
from dasp.report.fields import reading
from dasp.report.flags import Flags, flags_of
from dasp.report.indicators import Indicators, indicators_of
from dasp.report.runs import FORMATS, Run, run_of


@dataclass(frozen=True)
class PlanRecord:
    """What a plan asked for; `files` are the result files it has when it is finished."""

    name: str
    title: str
    about: str
    kind: str
    show: Sequence[str]
    command: str
    files: Sequence[str]


@dataclass(frozen=True)
class Folder:
    """Everything readable in a folder, by file name; `warnings` name what was left out."""

    runs: dict[str, Run] = field(default_factory=dict)
    indicators: dict[str, Indicators] = field(default_factory=dict)
    flags: dict[str, Flags] = field(default_factory=dict)
    efficiencies: dict[str, Efficiency] = field(default_factory=dict)
    plans: list[PlanRecord] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def files(self) -> set[str]:
        """Return the names of all result files that were read."""
        return {*self.runs, *self.indicators, *self.flags, *self.efficiencies}


def read_folder(path: str | Path) -> Folder:
    """Read every result file and plan record below `path`; a damaged one becomes a warning."""
    root = Path(path)
    if not root.is_dir():
        raise InputError(f"{root}: no such folder. Give the folder that `dasp bench` wrote.")
    found = Folder()
    for file in sorted(root.rglob("*.json")):
        if file.name.startswith("."):
            continue  # half of a file that another process is writing
        name = file.relative_to(root).as_posix()
        try:
            _add(found, name, json.loads(file.read_text(encoding="utf-8")))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            found.warnings.append(f"{name} was left out: it is not JSON ({error}).")
        except (InputError, OSError) as error:
            found.warnings.append(f"{name} was left out: {error}")
    if not found.files:
        why = f" ({'; '.join(found.warnings)})" if found.warnings else ""
        raise InputError(f"{root}: no results here{why}. Make some with `dasp bench`.")
    return found


def _add(found: Folder, name: str, content: Any) -> None:
    """Put the content of one file where its format belongs."""
    kind = content.get("format") if isinstance(content, Mapping) else None
    if kind in FORMATS:
        found.runs[name] = run_of(content)
    elif kind == INDICATORS:
        found.indicators[name] = indicators_of(content)
    elif kind == FLAGS:
        found.flags[name] = flags_of(content)
    elif kind == EFFICIENCY:
        found.efficiencies[name] = efficiency_of(content)
    elif kind == RECORD:
        plan = _plan_of(content, PurePosixPath(name).parent.parent)
        if (plan.name, plan.files) not in [(other.name, other.files) for other in found.plans]:
            found.plans.append(plan)  # run alone and in a list of plans it leaves two records
    else:
        raise InputError("it is no result file or plan record of this version.")


def _plan_of(content: Mapping[str, Any], folder: PurePosixPath) -> PlanRecord:
    """Return a plan record; its files lie in `folder`, the one above its own."""
    with reading("run the plan again"):
        return PlanRecord(
            name=str(content["name"]),
            title=str(content["title"]) or str(content["name"]),
            about=str(content["about"]),
            kind=str(content["kind"]),
            show=tuple(map(str, content["show"])),
            command=str(content["command"]),
            files=tuple((folder / str(file)).as_posix() for file in content["files"]),
        )
