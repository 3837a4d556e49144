"""Plans: which methods, models, protocols and data are run; from TOML, changed by flags."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from dasp.bench.features import model_digest
from dasp.bench.material import DataOptions
from dasp.bench.references import code_digest, find_method, find_model, model_name
from dasp.bench.results import Cell
from dasp.core.errors import OptionError, unknown_name
from dasp.methods import METHODS, Method, hyperparameters
from dasp.methods.rebalance import MEMORY
from dasp.streams.protocols import PROTOCOLS, visits

PLANS = Path(str(files("dasp") / "plans"))
MAIN_PROTOCOLS = PROTOCOLS[:5]


@dataclass(frozen=True)
class Entry:
    """One row of a table: a method and its options."""

    method: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What a run consists of."""

    data: DataOptions = field(default_factory=DataOptions)
    models: tuple[str, ...] = ("sounding_shapes_0",)
    methods: dict[str, Entry] = field(
        default_factory=lambda: {name: Entry(name) for name in METHODS}
    )
    protocols: tuple[str, ...] = MAIN_PROTOCOLS
    severities: tuple[int, ...] = (5,)
    seeds: tuple[int, ...] = (0,)
    batch_size: int = 64
    corruptions: tuple[str, ...] = ()

    def cells(self) -> list[Cell]:
        """Return every run, Source's first; a wrong name or option is refused before any starts."""
        identity = self.data.open().identity
        digests = {name: model_digest(find_model(name)) for name in self.models}
        for protocol in self.protocols:
            visits(protocol, self.severities[0], ())
        return [
            Cell(
                data=identity,
                model={"name": model_name(model), "digest": digests[model]},
                label=label,
                method=entry.method,
                options=resolved(entry),
                protocol=protocol,
                severity=severity,
                seed=seed,
                batch_size=self.batch_size,
                corruptions=self.corruptions,
                code=code_digest(find_method(entry.method)),
            )
            for severity in self.severities
            for seed in self.seeds
            for model in self.models
            for protocol in self.protocols
            for label, entry in self.methods.items()
        ]


def resolved(entry: Entry) -> dict[str, Any]:
    """Return all options of a method with their defaults filled in, refusing unknown ones."""
    method = find_method(entry.method)
    loop = {
        "lr": method.default_lr,
        "steps": 1,
        "predict": method.default_predict,
        "autocast": False,
        "rebalance": 0.0,
        "rebalance_memory": MEMORY,
    }
    own = {name: parameter.default for name, parameter in hyperparameters(method).items()}
    for name in entry.options:
        if name not in loop | own:
            raise OptionError(unknown_name(f"option of {entry.method}", name, loop | own))
    return loop | own | entry.options


def load_plan(reference: str | Path) -> Plan:
    """Read a plan that comes with the package, by name, or a TOML file."""
    path = Path(reference)
    if path.suffix != ".toml":
        path = PLANS / f"{reference}.toml"
        if not path.exists():
            known = [plan.stem for plan in PLANS.glob("*.toml")]
            raise OptionError(unknown_name("plan", str(reference), known))
    try:
        content = tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise OptionError(f"no plan at {path}.") from error
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"{path} is not valid TOML: {error}.") from error
    return plan_from(content, str(path))


def plan_from(content: dict[str, Any], where: str) -> Plan:
    """Build a plan from plain data; an unknown key names the nearest right one."""
    _check_keys(content, [f.name for f in fields(Plan)], f"key of {where}")
    values: dict[str, Any] = dict(content)
    if "data" in values:
        _check_keys(
            values["data"], [f.name for f in fields(DataOptions)], f"key of [data] in {where}"
        )
        data = dict(values["data"])
        for name in ("root", "frost_dir", "noise_dir"):
            if name in data:
                data[name] = Path(data[name])
        values["data"] = DataOptions(**data)
    if "methods" in values:
        values["methods"] = {
            label: Entry(options.get("method", label), _without(options, "method"))
            for label, options in values["methods"].items()
        }
    for name in ("models", "protocols", "severities", "seeds", "corruptions"):
        if name in values:
            values[name] = tuple(values[name])
    return Plan(**values)


def with_settings(plan: Plan, settings: Sequence[str]) -> Plan:
    """Change options of methods: `dasp.delta=0.03`, or `*.lr=1e-3` for all."""
    methods = dict(plan.methods)
    for setting in settings:
        target, equals, text = setting.partition("=")
        label, dot, option = target.rpartition(".")
        if not (equals and dot):
            raise OptionError(
                f"--set takes METHOD.OPTION=VALUE, such as dasp.delta=0.03: {setting!r}."
            )
        if label != "*" and label not in methods:
            raise OptionError(unknown_name("method of this plan", label, methods))
        for name in methods if label == "*" else [label]:
            entry = methods[name]
            changed = Entry(entry.method, entry.options | {option: _value(text)})
            resolved(changed)
            methods[name] = changed
    return replace(plan, methods=methods)


def with_methods(plan: Plan, names: Sequence[str]) -> Plan:
    """Keep these rows of the plan; add registered methods and `file.py:Name` that it lacks."""
    chosen: dict[str, Entry] = {}
    for name in names:
        if name in plan.methods:
            chosen[name] = plan.methods[name]
        else:
            method: type[Method] = find_method(name)
            label = method.__name__.lower() if ".py:" in name else name
            chosen[label] = Entry(name)
    return replace(plan, methods=chosen)


def _value(text: str) -> Any:
    """Read a value as TOML does, or as a plain word."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _without(options: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != name}


def _check_keys(content: dict[str, Any], known: list[str], kind: str) -> None:
    for name in content:
        if name not in known:
            raise OptionError(unknown_name(kind, name, known))
