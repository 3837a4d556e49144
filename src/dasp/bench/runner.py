"""Run a plan: find what is not done yet, run it on an engine, and pack the results."""

from collections.abc import Sequence
from pathlib import Path

from dasp.bench.code import edited_files
from dasp.bench.cost import measure_costs
from dasp.bench.engines import Engine, Workspace, local
from dasp.bench.plan import EFFICIENCY, Job, Plan
from dasp.bench.results import PlanRecord, Result, finished, pack, write_plan
from dasp.core.files import remove_parts


def run_plan(
    plan: Plan,
    workspace: Workspace,
    name: str = "plan",
    command: str = "",
    engine: Engine | None = None,
    show: bool = True,
    again: bool = False,
) -> dict[str, list[Result]]:
    """Run what is not done yet; return the results of each row, by its label.

    Safe to interrupt and to run twice at once on one folder: a run is made by one process. Costs
    are measured on this machine whatever the engine, because nothing may run beside them. With
    `again`, results of this plan that other code made are removed first.
    """
    jobs = plan.jobs()
    workspace.results.mkdir(parents=True, exist_ok=True)
    remove_parts(workspace.results / "runs")
    rows = [(label, job.run.key) for label, job in jobs]
    record = PlanRecord(name, plan.title or name, plan.about, list(plan.show), command, rows)
    write_plan(workspace.results, record)
    todo, edited = survey(jobs, workspace.results)
    if again and edited:
        pack(workspace.results, without=edited)
        todo, _ = survey(jobs, workspace.results)
    if todo and plan.kind == EFFICIENCY:
        measure_costs(todo, workspace, show)
    elif todo:
        (engine or local.run)(todo, workspace, show)
    pack(workspace.results)
    results = finished(workspace.results)
    found: dict[str, list[Result]] = {}
    for label, job in jobs:
        found.setdefault(label, []).append(results[job.run.key])
    return found


def survey(jobs: Sequence[tuple[str, Job]], folder: Path) -> tuple[list[Job], dict[str, list[str]]]:
    """Return the jobs of a plan whose results are not in a folder, each once, and edited files.

    The latter are, by the key of a result that is there, what `edited_files` says of it.
    """
    done, unique = finished(folder), {job.run.key: job for _, job in jobs}
    todo = [job for key, job in unique.items() if key not in done]
    made = {
        key: edited_files(job.run.method, done[key]) for key, job in unique.items() if key in done
    }
    return todo, {key: files for key, files in made.items() if files}
