"""The kinds of plan, and the record that a plan leaves beside its results."""

import json
from pathlib import Path

from dasp.bench.efficiency import efficiency_files, run_efficiency
from dasp.bench.engines.local import LOCAL
from dasp.bench.flags import flag_files, run_flags
from dasp.bench.indicators import indicator_files, run_indicators
from dasp.bench.plan import Plan
from dasp.bench.prepare import Place
from dasp.bench.runner import run_plan
from dasp.bench.work import Engine
from dasp.core.files import atomic_path

RECORD = "dasp-plan-1"


def files_of(plan: Plan) -> list[str]:
    """Return the names of the result files that a plan makes, before any is made."""
    if plan.kind == "indicators":
        return indicator_files(plan)
    if plan.kind == "flags":
        return flag_files(plan)
    if plan.kind == "efficiency":
        return efficiency_files(plan)
    return [cell.filename for cell in plan.cells()]


def run_any(plan: Plan, place: Place, show: bool = True, engine: Engine = LOCAL) -> list[Path]:
    """Run what a plan still lacks; return all its result files.

    Costs are measured on this machine whatever the engine: nothing may run beside them.
    """
    if plan.kind == "efficiency":
        return run_efficiency(plan, place, show)
    runners = {"indicators": run_indicators, "flags": run_flags}
    return runners.get(plan.kind, run_plan)(plan, place, show, engine)


def write_record(folder: Path, place: int, name: str, plan: Plan, command: str) -> Path:
    """Write which results belong to a plan and what to show of them: `plans/<place>-<name>.json`.

    Results lie flat in `folder`, and plans may share them; a report finds them by this record.
    """
    content = {
        "format": RECORD,
        "name": name,
        "title": plan.title or name,
        "about": plan.about,
        "kind": plan.kind,
        "show": plan.show,
        "command": command,
        "files": files_of(plan),
    }
    path = folder / "plans" / f"{place:02d}-{name}.json"
    with atomic_path(path) as part:
        part.write_text(json.dumps(content, indent=1) + "\n")
    return path
