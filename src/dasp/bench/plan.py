"""Plans: which methods, models, protocols and data are run."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch import nn

from dasp.bench.features import FLOAT32, PRECISIONS, model_digest
from dasp.bench.material import SOURCE_SAMPLES, DataOptions
from dasp.bench.references import code_digest, find_method, find_model, model_name
from dasp.bench.results import Cell
from dasp.core.errors import OptionError, unknown_name
from dasp.methods import METHODS, Method, hyperparameters
from dasp.methods.base import check_encoders, not_negative, whole
from dasp.methods.rebalance import MEMORY
from dasp.streams.protocols import PROTOCOLS, resets_once, sensors, visits

PLANS = Path(str(files("dasp") / "plans"))
MAIN_PROTOCOLS = PROTOCOLS[:5]


@dataclass(frozen=True)
class Entry:
    """One row of a table: a method and the options that differ from those of the data set."""

    method: str
    options: dict[str, Any] = field(default_factory=dict)
    fit: int = 0
    """How many clean training samples the method is given first; 0: as many as it must have."""

    def __post_init__(self) -> None:
        if self.fit:
            whole(fit=self.fit)


@dataclass(frozen=True)
class Plan:
    """What a run consists of, and what a report shows of it."""

    title: str = ""
    about: str = ""
    kind: str = "streams"
    show: tuple[str, ...] = ("comparison",)
    data: DataOptions = field(default_factory=DataOptions)
    models: tuple[str, ...] = ("sounding_shapes_0",)
    methods: dict[str, Entry] = field(
        default_factory=lambda: {name: Entry(name) for name in METHODS}
    )
    protocols: tuple[str, ...] = MAIN_PROTOCOLS
    severities: tuple[int, ...] = (5,)
    seeds: tuple[int, ...] = (0,)
    batch_sizes: tuple[int, ...] = (64,)
    corruptions: tuple[str, ...] = ()
    clean_after: int = 0
    """How many clean samples are judged after each domain of a stream without resets."""
    tokens: str = "float32"
    """How encoded data are kept: float32, or float16 at half the size and a little less exact."""

    def __post_init__(self) -> None:
        if self.tokens not in PRECISIONS:
            raise OptionError(unknown_name("precision of tokens", self.tokens, PRECISIONS))
        whole(**{f"batch size {size}": size for size in self.batch_sizes})
        not_negative(clean_after=self.clean_after)

    def cells(self) -> list[Cell]:
        """Return every run, Source's first; a wrong name or option is refused before any starts."""
        material = self.data.open()
        sources = {
            label: material.source(count).identity if (count := clean_samples(entry)) else {}
            for label, entry in self.methods.items()
        }
        models = {name: find_model(name) for name in self.models}
        digests = {name: model_digest(model) for name, model in models.items()}
        for protocol in self.protocols:
            visits(protocol, self.severities[0], ())
            for name, model in models.items():
                _check_modalities(protocol, name, model)
        for entry in self.methods.values():
            for model in models.values():
                check_encoders(find_method(entry.method), model)
        return [
            Cell(
                data=material.identity,
                model={"name": model_name(model), "digest": digests[model]},
                label=label,
                method=entry.method,
                options=resolved(entry, self.data.name),
                protocol=protocol,
                severity=severity,
                seed=seed,
                batch_size=batch_size,
                corruptions=self.corruptions,
                clean_after=self.clean_after if resets_once(protocol) else 0,
                code=code_digest(find_method(entry.method)),
                source=sources[label],
                tokens=FLOAT32 if find_method(entry.method).tunes_encoder else self.tokens,
            )
            for severity in self.severities
            for batch_size in self.batch_sizes
            for seed in self.seeds
            for model in self.models
            for protocol in self.protocols
            for label, entry in self.methods.items()
        ]


def _check_modalities(protocol: str, name: str, model: nn.Module) -> None:
    """Refuse a protocol that damages what a model does not have."""
    lacking = sorted(sensors(protocol) - set(model.modalities))  # type: ignore[arg-type]
    if lacking:
        raise OptionError(
            f"protocol '{protocol}' damages {', '.join(lacking)}, which the model {name} does not "
            "take: choose another --protocol, or a model of the name sounding_shapes_depth_…."
        )


def clean_samples(entry: Entry) -> int:
    """Return how many clean training samples a row is fitted with."""
    if entry.fit:
        return entry.fit
    return SOURCE_SAMPLES if find_method(entry.method).needs_source else 0


def resolved(entry: Entry, data: str) -> dict[str, Any]:
    """Return all options of a method: its defaults, those for a data set, those of the row."""
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
    chosen = data_options(data).get(entry.method, {}) | entry.options
    for name in chosen:
        if name not in loop | own:
            raise OptionError(unknown_name(f"option of {entry.method}", name, loop | own))
    options = loop | own | chosen
    if not options["rebalance"]:
        del options["rebalance_memory"]  # it takes no part
    return options


@cache
def data_options(data: str) -> dict[str, dict[str, Any]]:
    """Return the options of each method for a data set: published ones, or tuned on validation."""
    path = PLANS / "options" / f"{data}.toml"
    return tomllib.loads(path.read_text()) if path.exists() else {}


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
            changed = replace(entry, options=entry.options | {option: _value(text)})
            resolved(changed, plan.data.name)
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


def of_methods(plan: Plan, names: Sequence[str]) -> Plan:
    """Keep the rows of these methods, whatever their labels."""
    for name in names:
        find_method(name)
    kept = {label: entry for label, entry in plan.methods.items() if entry.method in names}
    return replace(plan, methods=kept)


def _value(text: str) -> Any:
    """Read a value as TOML does, or as a plain word."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
