"""Choose each method's learning rate (and EATA's margin) by one rule, on validation data.

The rule: of the grid below, the setting with the highest accuracy on the *validation* split of
the built-in set, drawn with other seeds and damaged by other draws than any test stream, averaged
over the given models. It uses validation labels; no test sample takes part. Every method gets the
same learning rates.
"""

from dataclasses import replace
from typing import Any

from dasp.bench.plan import Plan
from dasp.bench.prepare import Place
from dasp.bench.results import read_result
from dasp.bench.runner import run_plan

LEARNING_RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
# EATA's published similarity of .05 keeps few samples when there are few classes.
EXTRA: dict[str, dict[str, tuple[Any, ...]]] = {"eata": {"similarity": (0.05, 0.25)}}


def grid(method: str) -> list[dict[str, Any]]:
    """Return the settings tried for a method."""
    settings: list[dict[str, Any]] = [{"lr": lr} for lr in LEARNING_RATES]
    for option, values in EXTRA.get(method, {}).items():
        settings = [setting | {option: value} for setting in settings for value in values]
    return settings if method != "source" else [{}]


def tuning_plan(plan: Plan, protocols: tuple[str, ...]) -> Plan:
    """Return the plan that tries every setting of every method on validation data."""
    entries = {
        _label(label, setting): replace(entry, options=entry.options | setting)
        for label, entry in plan.methods.items()
        for setting in grid(entry.method)
    }
    data = replace(plan.data, split="validation", seed=plan.data.seed + 1)
    return replace(plan, data=data, methods=entries, protocols=protocols)


def tune(plan: Plan, protocols: tuple[str, ...], place: Place, show: bool = True) -> dict[str, Any]:
    """Run the grid; return for each method the accuracies and the setting chosen."""
    wide = tuning_plan(plan, protocols)
    accuracies: dict[str, list[float]] = {}
    for path in run_plan(wide, place, show):
        content = read_result(path)
        label = content["cell"]["label"]
        accuracies.setdefault(label, []).append(content["result"]["accuracy"])
    means = {label: sum(values) / len(values) for label, values in accuracies.items()}
    chosen = {}
    for label, entry in plan.methods.items():
        tried = {_label(label, s): s for s in grid(entry.method)}
        best = max(tried, key=lambda name: means[name])
        chosen[label] = {
            "options": entry.options | tried[best],
            "accuracy": means[best],
            "tried": {name: means[name] for name in tried},
        }
    return chosen


def _label(label: str, setting: dict[str, Any]) -> str:
    return label + "".join(f"@{name}={value:g}" for name, value in setting.items())
