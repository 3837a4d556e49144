"""Plans as TOML files: those of the package by name, or a user's own."""

import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from dasp.bench.material import DataOptions
from dasp.bench.plan import PLANS, Entry, Plan
from dasp.core.errors import OptionError, unknown_name

KINDS = ("streams", "indicators", "flags", "efficiency")
LISTS = ("show", "models", "protocols", "severities", "seeds", "batch_sizes", "corruptions")


def plan_names() -> list[str]:
    """Return the names of the plans that come with the package, such as "paper/ablation"."""
    found = (path.relative_to(PLANS).with_suffix("") for path in PLANS.rglob("*.toml"))
    return sorted(str(name) for name in found if name.parts[0] != "options")


def load_plans(reference: str | Path) -> dict[str, Plan]:
    """Read a plan of the package by name, or a TOML file; a list of plans gives each of them."""
    path = Path(reference)
    if path.suffix != ".toml":
        if str(reference) not in plan_names():
            raise OptionError(unknown_name("plan", str(reference), plan_names()))
        path = PLANS / f"{reference}.toml"
    content = _content(path)
    if "plans" not in content:
        return {path.stem: plan_from(content, str(path))}
    _check_keys(content, ["plans"], f"key of {path}, which lists plans,")
    found: dict[str, Plan] = {}
    for entry in content["plans"]:
        beside = path.parent / entry
        found |= load_plans(beside if beside.suffix == ".toml" else entry)
    return found


def load_plan(reference: str | Path) -> Plan:
    """Read one plan."""
    plans = list(load_plans(reference).values())
    if len(plans) != 1:
        raise OptionError(f"{reference} is a list of {len(plans)} plans: name one of them.")
    return plans[0]


def plan_from(content: dict[str, Any], where: str) -> Plan:
    """Build a plan from plain data; an unknown key names the nearest right one."""
    _check_keys(content, [*(f.name for f in fields(Plan)), "vary"], f"key of {where}")
    values: dict[str, Any] = dict(content)
    if "data" in values:
        values["data"] = _data(values["data"], where)
    vary = values.pop("vary", {})
    methods = _methods(values.pop("methods", None))
    if methods is None:
        methods = Plan().methods
    values["methods"] = methods | _varied(methods, vary, where)
    for name in LISTS:
        if name in values:
            values[name] = tuple(values[name])
    plan = Plan(**values)
    if plan.kind not in KINDS:
        raise OptionError(unknown_name(f"kind of plan in {where}", plan.kind, KINDS))
    return plan


def _content(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise OptionError(f"no plan at {path}.") from error
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"{path} is not valid TOML: {error}.") from error


def _data(content: dict[str, Any], where: str) -> DataOptions:
    _check_keys(content, [f.name for f in fields(DataOptions)], f"key of [data] in {where}")
    paths = ("root", "frost_dir", "noise_dir")
    values: dict[str, Any] = {k: Path(v) if k in paths else v for k, v in content.items()}
    return DataOptions(**values)


def _methods(content: list[str] | dict[str, dict[str, Any]] | None) -> dict[str, Entry] | None:
    """Return the rows: a list of names, or a table for each label."""
    if content is None:
        return None
    if isinstance(content, list):
        return {name: Entry(name) for name in content}
    return {
        label: Entry(
            options.get("method", label),
            {k: v for k, v in options.items() if k not in ("method", "fit")},
            options.get("fit", 0),
        )
        for label, options in content.items()
    }


def _varied(
    methods: dict[str, Entry], vary: dict[str, dict[str, list[Any]]], where: str
) -> dict[str, Entry]:
    """Return a further row for each value of each option, all else as in the row it varies."""
    rows: dict[str, Entry] = {}
    for label, options in vary.items():
        if label not in methods:
            raise OptionError(unknown_name(f"row varied in {where}", label, methods))
        base = methods[label]
        for option, values in options.items():
            for value in values:
                rows[f"{label} {option}={value}"] = replace(
                    base, options=base.options | {option: value}
                )
    return rows


def _check_keys(content: dict[str, Any], known: list[str], kind: str) -> None:
    for name in content:
        if name not in known:
            raise OptionError(unknown_name(kind, name, known))
