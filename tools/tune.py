"""Choose each method's learning rate, or another option, by one rule, on validation data.

    python tools/tune.py                     # the methods of paper/overview
    python tools/tune.py --methods deyo t3a --protocols interleaved --samples 192
    python tools/tune.py paper/ablation --models sounding_shapes_0 sounding_shapes_1
    python tools/tune.py real/dsa/streams --root DIR --models dsa_0 --protocols interleaved/sensors

The rule: of the grid below, the setting with the highest accuracy on the *validation* split of the
plan's data set (of recordings: other sentences or people), damaged by other draws than any test
stream, averaged over the given models. It uses validation labels and no test sample. Every method
gets the same learning rates, EATA also two margins; CoTTA and methods without a learning rate get
values of the option that decides most in them. Prints lines of src/dasp/plans/options/DATA.toml.
What is done is not done again.
"""

from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import tyro

from dasp.bench.engines import Workspace
from dasp.bench.plan import Plan, load_plan, with_methods
from dasp.bench.runner import run_plan

LEARNING_RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
OUT = Workspace(Path("out/tuning"))
SIMILARITIES = (0.05, 0.25)  # of EATA: the published .05 keeps few samples of few classes
ANOTHER_OPTION: dict[str, list[dict[str, Any]]] = {
    "source": [{}],
    "t3a": [{"k": k} for k in (5, 20, 50, 100)],
    "lame": [{"kernel": kernel} for kernel in ("rbf", "knn", "linear")],
    "mdaa": [{"alpha": alpha} for alpha in (1, 2, 7)],
    "cotta": [{"augment": kind} for kind in ("roll", "noise", "gain", "crop")],
    "foa": [{"fitness_weight": weight} for weight in (0.04, 0.4, 4.0)],
}


def grid(method: str) -> list[dict[str, Any]]:
    """Return the settings tried for a method."""
    if method == "eata":
        return [{"lr": lr, "similarity": s} for lr in LEARNING_RATES for s in SIMILARITIES]
    return ANOTHER_OPTION.get(method) or [{"lr": lr} for lr in LEARNING_RATES]


def tuning_plan(plan: Plan, protocols: tuple[str, ...]) -> Plan:
    """Return the plan that tries every setting of every method on validation data."""
    rows = {
        _label(label, setting): replace(row, options=row.options | setting)
        for label, row in plan.methods.items()
        for setting in grid(row.method)
    }
    data = replace(plan.data, split="validation", seed=plan.data.seed + 1)
    return replace(plan, data=data, methods=rows, protocols=protocols)


def tune(
    plan: Plan, protocols: tuple[str, ...], workspace: Workspace, show: bool = True
) -> dict[str, Any]:
    """Run the grid; return for each row the accuracies and the setting chosen."""
    found = run_plan(tuning_plan(plan, protocols), workspace, "tune", show=show)
    means = {
        label: fmean(result.counts.accuracy for result in results if result.counts is not None)
        for label, results in found.items()
    }
    chosen = {}
    for label, row in plan.methods.items():
        tried = {_label(label, setting): setting for setting in grid(row.method)}
        best = max(tried, key=lambda name: means[name])
        chosen[label] = {
            "options": row.options | tried[best],
            "accuracy": means[best],
            "tried": {name: means[name] for name in tried},
        }
    return chosen


def _label(label: str, setting: dict[str, Any]) -> str:
    words = {n: v if isinstance(v, str) else f"{v:g}" for n, v in setting.items()}
    return label + "".join(f"@{name}={word}" for name, word in words.items())


def main(
    plan: Annotated[str, tyro.conf.Positional] = "paper/overview",
    methods: tuple[str, ...] = (),
    models: tuple[str, ...] = ("sounding_shapes_0",),
    protocols: tuple[str, ...] = ("continual/video", "continual/audio", "interleaved"),
    samples: int = 320,
    root: Path | None = None,
    workspace: Annotated[Workspace, tyro.conf.arg(name="")] = OUT,
) -> None:
    """Tune the methods of a plan and print what was chosen.

    Args:
        plan: Whose methods are tuned.
        methods: Some of its rows, or registered methods; by default all rows.
        models: Source models on which settings are compared.
        protocols: Streams on which settings are compared.
        samples: Samples per domain.
        root: Directory of the recordings, for a plan of such.
    """
    tuned = load_plan(plan)
    data = replace(tuned.data, samples=samples, root=root or tuned.data.root)
    tuned = replace(tuned, models=models, data=data)
    if methods:
        tuned = with_methods(tuned, methods)
    for label, found in tune(tuned, protocols, workspace).items():
        print("#", ", ".join(f"{name} {share:.2f}" for name, share in found["tried"].items()))
        print(f"[{label}]")
        for option, value in found["options"].items():
            print(f"{option} = {value!r}")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
