"""What stands behind `dasp bench`: run a plan, then show what came out."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from dasp.bench.engines import open_engine
from dasp.bench.estimate import estimate_seconds
from dasp.bench.kinds import files_of, run_any, write_record
from dasp.bench.material import DataOptions
from dasp.bench.plan import Plan, of_methods, with_methods, with_settings
from dasp.bench.plan_files import load_plans
from dasp.bench.prepare import Place
from dasp.bench.references import model_name
from dasp.bench.results import is_done
from dasp.bench.work import Engine
from dasp.core.errors import OptionError
from dasp.report.commands import publish

PlanName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PLAN")]
Words = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME")]


def bench(
    plan: PlanName = "quick",
    *,
    methods: Words = (),
    method: Words = (),
    settings: Annotated[
        tuple[str, ...], tyro.conf.arg(name="set", metavar="METHOD.OPTION=VALUE")
    ] = (),
    protocol: Words = (),
    severity: tuple[int, ...] = (),
    seed: tuple[int, ...] = (),
    corruptions: Words = (),
    model: Words = (),
    weights: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE")] = (),
    data: str | None = None,
    root: Path | None = None,
    flavour: str | None = None,
    samples: int | None = None,
    batch_size: tuple[int, ...] = (),
    tokens: Literal["float32", "float16"] | None = None,
    on_bad: Literal["error", "skip"] | None = None,
    source_split: str | None = None,
    results: Path = Path("out/results"),
    store: Path = Path("out/store"),
    store_gib: float = 50.0,
    workers: int | None = None,
    engine: Literal["local", "ray"] = "local",
    address: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT")] = None,
    cpus_per_cell: float | None = None,
    gpus_per_cell: float | None = None,
    dry_run: bool = False,
) -> int:
    """Run methods on streams, and write the table and a report.

    Runs a plan: `quick` (one source model, 512 samples a domain), `paper` (a list: every table
    and figure of the DASP paper, three models, 1,024 samples), `robust` (a list: streams as
    sensors send them), one of a list such as `paper/ablation`, or a TOML file of yours; flags
    change it. Data are corrupted and encoded
    once for all methods and kept in the store; each (method, protocol, model, seed) is one result
    file. Run it again after an interruption, or twice at once: what is done is not done again,
    and results of other settings are never mixed in.

    Examples:
      dasp bench --methods source dasp --protocol interleaved --severity 3
      dasp bench --set dasp.delta=0.03 '*.lr=1e-3'
      dasp bench --method my_method.py:Mine --model my_model.py:build
      dasp bench paper --data kinetics50 --root ~/ks50 --weights cav_mae_ks50.pth

    Args:
        plan: quick, paper, robust, paper/NAME, robust/NAME, or the path of a .toml file.
        methods: rows of the plan, or registered methods; by default all rows of the plan. In a
            list of plans: keep the rows of these methods.
        method: methods of your own beside them, file.py:Class.
        settings: options of methods, such as dasp.delta=0.03, or *.lr=1e-3 for all.
        protocol: per_domain/video, per_domain/audio (reset at each domain), continual/video,
            continual/audio, interleaved, clean; all further ones are never reset either: pairs
            (both modalities damaged), mixed (domains side by side in a batch), dirichlet
            (classes in bursts), sorted (one class after another), stretches (clean data between
            domains), gradual (severity climbs and falls), missing/audio, missing/video,
            constant/audio, constant/video (a sensor silent or stuck in every other domain),
            recurring (interleaved 20 times), long (100,000 samples). Of models with three
            sensors also per_domain/depth, continual/depth, interleaved/depth.
        severity: some of 1 to 5.
        seed: of the order of samples and of a method's draws; several are replicates.
        corruptions: keep only these, such as fog rain.
        model: names of trained models that come with the package, or file.py:function; with
            :bfloat16, :int8 or :compiled after it, its frozen encoders run that way.
        weights: CAV-MAE checkpoints (.safetensors, .pth).
        data: sounding_shapes (built in), kinetics50, vggsound, or folder.
        root: where kinetics50, vggsound or your folder lies.
        flavour: of the built-in set: balanced or sound.
        samples: of each domain.
        batch_size: samples a batch.
        tokens: how encoded data of streams are kept; float16 halves the store, and figures
            change a little.
        on_bad: whether a clip that cannot be read is an error, or is left out and listed.
        source_split: list of clean training clips, for methods that need some (brimpr).
        results: folder of result files, report.html, tables/ and figures/.
        store: folder of encoded data; may be removed at any time.
        store_gib: size the store may reach; what was used longest ago goes first.
        workers: processes, one thread each; by default one a core.
        engine: local (processes of this machine), or ray (a Ray cluster: see docs/distributed.md).
        address: of a Ray cluster: HOST:PORT, ray://HOST:PORT, or auto for the one of this
            machine; by default one is started here for as long as the run lasts.
        cpus_per_cell: CPUs that the cluster sets aside for each run, 1 by default; a run uses one
            thread, more keeps memory free.
        gpus_per_cell: GPUs for each run, 0 by default; 0.25 puts four runs on one.
        dry_run: only say what would be run.
    """
    plans = load_plans(plan)
    alone = {"method": method, "set": settings, "protocol": protocol, "severity": severity}
    if len(plans) > 1:
        _refuse_for_many(plan, list(plans), alone | {"batch-size": batch_size})
    changes: dict[str, Any] = {
        "protocols": protocol,
        "severities": severity,
        "corruptions": corruptions,
        "batch_sizes": batch_size,
        "tokens": tokens,
        "seeds": seed,
        "models": (*model, *map(str, weights)),
    }
    asked = {"name": data, "root": root, "flavour": flavour, "samples": samples, "on_bad": on_bad}
    asked |= {"source_split": source_split}
    for name, chosen in plans.items():
        chosen = _with_data(chosen, {k: v for k, v in asked.items() if v is not None})
        if methods:
            chosen = (with_methods if len(plans) == 1 else of_methods)(chosen, methods)
        if method:
            chosen = with_methods(chosen, [*chosen.methods, *method])
        given = {k: v for k, v in changes.items() if v}
        plans[name] = with_settings(replace(chosen, **given), settings)
    place = Place(results, store, store_gib, workers)
    needs = {"cpus_per_cell": cpus_per_cell, "gpus_per_cell": gpus_per_cell}
    where = open_engine(engine, address=address, **needs)
    return _run_and_report(plans, place, where, dry_run)


def _refuse_for_many(reference: str, names: Sequence[str], flags: Mapping[str, object]) -> None:
    """Refuse flags that would make all plans of a list alike."""
    given = [name for name, value in flags.items() if value]
    if given:
        raise OptionError(
            f"{reference} is a list of plans, and --{given[0]} changes one: name it, such as "
            f"`dasp bench {reference}/{names[0]}`."
        )


def _with_data(plan: Plan, asked: Mapping[str, Any]) -> Plan:
    """Change the data of a plan; other data start from their own defaults, with all samples.

    Costs are measured on a few in any case.
    """
    other = asked.get("name", plan.data.name) != plan.data.name
    few = plan.data.samples if plan.kind == "efficiency" else None
    before = DataOptions(samples=few) if other else plan.data
    return replace(plan, data=replace(before, **asked), models=() if other else plan.models)


def _run_and_report(plans: Mapping[str, Plan], place: Place, engine: Engine, dry_run: bool) -> int:
    console, command = Console(), shlex.join(["dasp", *sys.argv[1:]])
    paths: list[Path] = []
    for number, (name, plan) in enumerate(plans.items(), 1):
        if not plan.models:
            raise OptionError(
                f"data '{plan.data.name}' needs a model trained on it: give --weights FILE, or "
                "--model file.py:function."
            )
        if len(plans) > 1:
            console.rule(f"{number} of {len(plans)}: {name}")
        _announce(plan, place, engine.processes(place), console)
        if not dry_run:
            write_record(place.results, number, name, plan, command)
            paths += run_any(plan, place, engine=engine)
    return 0 if dry_run else publish(place.results, place.results, only=paths)


def _announce(plan: Plan, place: Place, processes: int | None, console: Console) -> None:
    """Say what will be run and roughly how long it will take."""
    if plan.kind != "streams":
        names = files_of(plan)
        done = sum((place.results / name).exists() for name in names)
        console.print(f"{len(names)} files of {plan.kind}; {done} done already.", highlight=False)
        return
    cells = plan.cells()
    if not cells:
        raise OptionError("nothing to run: the plan has no method, model, protocol or severity.")
    references = {model_name(model): model for model in plan.models}
    todo = [(references[c.model["name"]], c) for c in cells if not is_done(place.results, c)]
    minutes = estimate_seconds(todo, processes or 1) / 60
    console.print(
        f"{_several(len(cells), 'run')}: {', '.join(plan.methods)} on "
        f"{', '.join(plan.protocols)}, severity "
        f"{', '.join(map(str, plan.severities))}, models {', '.join(references)}, "
        f"{cells[0].data['samples']} samples a domain; {len(cells) - len(todo)} done already.",
        highlight=False,
    )
    if todo:
        length = (
            "less than a minute" if minutes < 1 else f"about {_several(round(minutes), 'minute')}"
        )
        where = (
            "on one process, less on a cluster"
            if processes is None
            else f"on {processes} processes"
        )
        console.print(f"To do: {length} of adapting {where}, after encoding.")


def _several(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
