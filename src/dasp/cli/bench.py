"""The commands `dasp bench` and `dasp check`."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Literal

import tyro
from rich.console import Console

from dasp.bench.checks import check_method
from dasp.bench.datasets import DataOptions
from dasp.bench.engines import Workspace, open_engine
from dasp.bench.plan import (
    EFFICIENCY,
    Job,
    Plan,
    load_plans,
    of_methods,
    with_methods,
    with_settings,
)
from dasp.bench.runner import run_plan, survey
from dasp.core.errors import OptionError

Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME")]
ALIKE = ("--protocols", "--severities", "--batch-sizes", "--set", "--add")
"""Flags that would make all plans of a list alike."""


@dataclass(frozen=True)
class BenchOptions:
    """Run methods on streams, and write a table and a report.

    Runs a plan: `quick` (one source model, 512 samples per domain), `paper` (a list: every table
    and figure of the DASP paper, three models, 1,024 samples), `robust` (a list: streams as
    sensors send them), one plan of a list such as `paper/ablation`, or your own TOML file. Flags
    change the plan: every key of a plan is a flag. Data are corrupted and encoded once for all
    methods and kept in the store. Run it again after an interruption, or twice at once: what is
    done is not done again, and results of other settings are never mixed in.

    Examples:
      dasp bench --methods source dasp --protocols interleaved --severities 3
      dasp bench --set dasp.delta=0.03 '*.lr=1e-3'
      dasp bench --add my_method.py:Mine --models my_model.py:build
      dasp bench paper --data kinetics50 --root ~/ks50 --models cav_mae_ks50.pth
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PLAN")] = "quick"
    """quick, costs, paper, robust, paper/NAME, robust/NAME, or the path of a .toml file."""
    methods: Names = ()
    """Rows of the plan, or registered methods; by default all rows. In a list of plans: keep the
    rows of these methods."""
    add: Names = ()
    """Methods beside them: registered ones, or your own as file.py:Class."""
    settings: Annotated[
        tuple[str, ...], tyro.conf.arg(name="set", metavar="METHOD.OPTION=VALUE")
    ] = ()
    """Options of methods, such as dasp.delta=0.03, or *.lr=1e-3 for all."""
    plan: Annotated[Plan, tyro.conf.arg(name="")] = field(default_factory=Plan)
    workspace: Annotated[Workspace, tyro.conf.arg(name="")] = field(default_factory=Workspace)
    engine: Literal["local", "ray"] = "local"
    """local (processes of this machine), or ray (a Ray cluster: see docs/distributed.md)."""
    address: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT")] = None
    """Of a Ray cluster: HOST:PORT, ray://HOST:PORT, or auto for the one of this machine; by default
    one is started here for as long as the run lasts."""
    cpus_per_run: float | None = None
    """CPUs that the cluster reserves for each run, 1 by default; a run uses one thread, more keeps
    memory free."""
    gpus_per_run: float | None = None
    """GPUs for each run, 0 by default; 0.25 puts four runs on one."""
    again: bool = False
    """Also run again what was made by other code of the same version, and replace its results."""
    dry_run: bool = False
    """Only say what would be run."""


def bench(words: Sequence[str]) -> int:
    """Run methods on streams, and write a table and a report."""
    chosen = parse(words)
    # Not before the flags are read: a misspelt one should not wait for pandas and matplotlib.
    from dasp.cli.report import publish

    plans = {key: _selected(options, len(chosen) == 1) for key, options in chosen.items()}
    if len(plans) > 1:  # some of a list may have no row of the methods asked for
        plans = {key: plan for key, plan in plans.items() if plan.methods} or plans
    options = next(iter(chosen.values()))
    cluster = ("address", "cpus_per_run", "gpus_per_run")
    engine = open_engine(options.engine, **{name: getattr(options, name) for name in cluster})
    console, command = Console(), shlex.join(["dasp", *sys.argv[1:]])
    jobs = {key: _jobs(plan) for key, plan in plans.items()}  # before the first of them is run
    for number, (key, plan) in enumerate(plans.items(), 1):
        if len(plans) > 1:
            console.rule(f"{number} of {len(plans)}: {key}")
        _announce(plan, jobs[key], options.workspace, console)
        if not options.dry_run:
            run_plan(plan, options.workspace, key, command, engine, again=options.again)
    results = options.workspace.results
    return 0 if options.dry_run else publish(results, results, only=list(plans))


def parse(words: Sequence[str]) -> dict[str, BenchOptions]:
    """Return the options for each plan that the first word names, `quick` if it names none."""
    words = list(words)
    name = words.pop(0) if words and not words[0].startswith("-") else "quick"
    plans = load_plans(name)
    for word in words if len(plans) > 1 else ():
        flag = word.partition("=")[0].replace("_", "-")
        if flag in ALIKE:
            raise OptionError(
                f"{name} is a list of plans, and {flag} is for a single one: name it, such as "
                f"`dasp bench {next(iter(plans))}`."
            )
    return {key: _options(name, plan, words) for key, plan in plans.items()}


def _options(name: str, plan: Plan, words: Sequence[str]) -> BenchOptions:
    """Read the flags; what they do not say is as in the plan."""
    given = dict(pairwise(" ".join(words).replace("--data=", "--data ").split()))
    if given.get("--data", plan.data.name) != plan.data.name:
        # Other data begin with their own defaults and all samples; costs are measured on a few.
        few = plan.data.samples if plan.kind == EFFICIENCY else None
        plan = replace(plan, data=DataOptions(samples=few), models=())
    default = BenchOptions(name=name, plan=plan)
    return tyro.cli(BenchOptions, args=words, default=default, prog="dasp bench")


def _selected(options: BenchOptions, alone: bool) -> Plan:
    """Return the plan with the rows and settings that the flags ask for."""
    plan = options.plan
    if options.methods:
        plan = (with_methods if alone else of_methods)(plan, options.methods)
    if options.add:
        plan = with_methods(plan, [*plan.methods, *options.add])
    if not plan.models:
        raise OptionError(
            f"data set '{plan.data.name}' needs a model trained on it: give --models FILE, or "
            "--models file.py:function."
        )
    return with_settings(plan, options.settings)


def _jobs(plan: Plan) -> list[tuple[str, Job]]:
    """Return the jobs of a plan, at least one."""
    if not (jobs := plan.jobs()):
        raise OptionError("nothing to run: the plan has no method, model, protocol or severity.")
    return jobs


def _announce(
    plan: Plan, jobs: list[tuple[str, Job]], workspace: Workspace, console: Console
) -> None:
    """Say what will be run and how much of it is done."""
    todo, edited = survey(jobs, workspace.results)
    dealt = any(next(job.visits()).shares for _, job in jobs)
    samples = f"{jobs[0][1].run.data['samples']} samples{'' if dealt else ' per domain'}"
    console.print(
        f"{len(jobs)} runs, {len(jobs) - len(todo)} done already: {', '.join(plan.methods)} on "
        f"{', '.join(plan.protocols)}, severity {', '.join(map(str, plan.severities))}, models "
        f"{', '.join(plan.models)}, {samples}.",
        highlight=False,
    )
    if edited:
        files = sorted({name for names in edited.values() for name in names})
        console.print(
            f"{len(edited)} of them were made by other code of {', '.join(files)}, with the same "
            "version of the method: --again runs them again.",
            style="yellow",
            highlight=False,
        )


def check(method: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="METHOD")]]) -> None:
    """Run the contract check on a registered method.

    Args:
        method: Its name, such as "dasp".
    """
    check_method(method)
    print(f"{method} fulfils the contract")
