"""What stands behind `dasp tune`: try settings on validation data, print the best as a file."""

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from dasp.bench.plan_files import load_plan
from dasp.bench.prepare import Place
from dasp.bench.tuning import tune as tune_plan
from dasp.report.bench_command import PlanName, Words


def tune(
    plan: PlanName = "paper/overview",
    *,
    model: Words = ("sounding_shapes_0",),
    protocol: Words = ("continual/video", "continual/audio", "interleaved"),
    samples: int = 320,
    results: Path = Path("out/tuning"),
    store: Path = Path("out/store"),
    workers: int | None = None,
) -> int:
    """Choose learning rates on validation data, by one rule for all methods.

    Every method of the plan gets the same learning rates (EATA also several similarities); the
    setting with the highest accuracy on the *validation* split of the built-in set, with other
    samples and other corruption draws than any test stream, is printed as the lines of
    plans/options/sounding_shapes.toml. The rule uses validation labels, never a test sample.

    Args:
        plan: whose methods are tuned.
        model: source models on which settings are compared.
        protocol: streams on which settings are compared.
        samples: of each domain.
        results: folder of result files; done ones are kept.
        store: folder of encoded data.
        workers: processes; by default one a core.
    """
    wide = load_plan(plan)
    wide = replace(wide, models=model, data=replace(wide.data, samples=samples))
    chosen = tune_plan(wide, protocol, Place(results, store, 50.0, workers))
    console = Console()
    for label, found in chosen.items():
        tried = ", ".join(f"{name} {accuracy:.2f}" for name, accuracy in found["tried"].items())
        console.print(f"# {tried}", highlight=False, markup=False, soft_wrap=True)
        console.print(f"[{label}]", highlight=False, markup=False)
        for option, value in found["options"].items():
            console.print(f"{option} = {value!r}", highlight=False, markup=False)
    return 0
