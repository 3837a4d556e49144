"""Plans: which methods, models, protocols and data are run, read from TOML files and flags."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from torch import nn

from dasp.bench.datasets import SOURCE_SAMPLES, DataOptions, Dataset
from dasp.bench.features import FLOAT32, PRECISIONS
from dasp.bench.references import find_method, find_model, model_digest, model_name, versions_of
from dasp.bench.results import PlanRecord, RunConfig
from dasp.core.errors import OptionError, unknown_name
from dasp.methods import METHODS, hyperparameters
from dasp.methods.base import check_encoders, not_negative, whole
from dasp.methods.rebalance import MEMORY
from dasp.streams.protocols import PROTOCOLS, Visit, resets_once, sensors, visits

PLANS = Path(str(files("dasp") / "plans"))
MAIN_PROTOCOLS = PROTOCOLS[:5]
STREAMS, EFFICIENCY = "streams", "efficiency"
COST = {"rounds": 5, "threads": 1}  # several threads would wait for each other on a busy machine

Names = tuple[str, ...]


@dataclass(frozen=True)
class MethodRow:
    """One row of a table: a method and the options that differ from those of the data set."""

    method: str
    options: dict[str, Any] = field(default_factory=dict)
    fit: int = 0
    """Clean training samples that the method is fitted with; 0: as many as it needs."""

    def __post_init__(self) -> None:
        if self.fit:
            whole(fit=self.fit)

    @property
    def source_samples(self) -> int:
        """Return how many clean training samples the row is fitted with."""
        if self.fit:
            return self.fit
        return SOURCE_SAMPLES if find_method(self.method).needs_source else 0


@dataclass(frozen=True)
class Job:
    """One run that is to be done, and where its model and its data are found."""

    run: RunConfig
    model: str
    """As the user wrote it."""
    data: DataOptions

    @property
    def name(self) -> str:
        """Return what a progress bar calls it."""
        return f"{self.run.protocol} {self.run.method} {self.run.model['name']}"

    def visits(self) -> Iterator[Visit]:
        """Yield the visits of its stream."""
        run = self.run
        return visits(run.protocol, run.severity, run.corruptions, run.data["samples"])

    def batches(self) -> int:
        """Return the number of batches of its stream."""
        samples, size = self.run.data["samples"], self.run.batch_size
        return sum(visit.batches(samples, size) for visit in self.visits())


@dataclass(frozen=True)
class Plan:
    """What is run, and what a report shows of it. Every field is a key of a plan's TOML file."""

    title: Annotated[str, tyro.conf.Suppress] = ""
    about: Annotated[str, tyro.conf.Suppress] = ""
    kind: Annotated[Literal["streams", "efficiency"], tyro.conf.Suppress] = "streams"
    show: Annotated[Names, tyro.conf.Suppress] = ("comparison",)
    methods: Annotated[dict[str, MethodRow], tyro.conf.Suppress] = field(
        default_factory=lambda: {name: MethodRow(name) for name in METHODS}
    )
    models: Annotated[Names, tyro.conf.arg(metavar="NAME")] = ("sounding_shapes_0",)
    """Models that come with the package, files of CAV-MAE weights, or your own as file.py:build;
    with :int8, :bfloat16 or :compiled behind it, with faster encoders."""
    protocols: Annotated[Names, tyro.conf.arg(metavar="NAME")] = MAIN_PROTOCOLS
    """per_domain/video, per_domain/audio (reset at each domain), continual/video, continual/audio,
    interleaved, clean; none of the following is reset either: pairs (both modalities damaged),
    mixed (domains side by side in a batch), dirichlet (classes in bursts), sorted (one class after
    another), stretches (clean data between domains), gradual (severity rises and falls),
    missing/audio, missing/video, constant/audio, constant/video (a sensor silent or stuck in every
    other domain), recurring (interleaved 20 times), long (100,000 samples). For models with three
    sensors also per_domain/depth, continual/depth, interleaved/depth."""
    severities: tuple[int, ...] = (5,)
    """Some of 1 to 5."""
    corruptions: Annotated[Names, tyro.conf.arg(metavar="NAME")] = ()
    """Keep only these corruptions; by default all of the protocol."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of the order of samples and of the methods' own draws."""
    batch_sizes: tuple[int, ...] = (64,)
    """Samples per batch."""
    clean_after: int = 0
    """Clean samples evaluated after each domain of a stream that is never reset."""
    tokens: Literal["float32", "float16"] = "float32"
    """Precision of stored features; float16 halves the store and changes figures a little."""
    data: Annotated[DataOptions, tyro.conf.arg(name="")] = field(default_factory=DataOptions)

    def __post_init__(self) -> None:
        if self.kind not in (STREAMS, EFFICIENCY):
            raise OptionError(unknown_name("kind of plan", self.kind, (STREAMS, EFFICIENCY)))
        if self.tokens not in PRECISIONS:
            raise OptionError(unknown_name("precision of tokens", self.tokens, PRECISIONS))
        whole(**{f"batch size {size}": size for size in self.batch_sizes})
        not_negative(clean_after=self.clean_after)

    def jobs(self) -> list[tuple[str, Job]]:
        """Return (label of the row, job) of every run; wrong names and options are refused here."""
        dataset = self.data.open()
        sources = {
            label: dataset.source(row.source_samples).identity if row.source_samples else {}
            for label, row in self.methods.items()
        }
        digests = {name: self._checked_digest(name) for name in self.models}
        options = {label: resolved(row, self.data.name) for label, row in self.methods.items()}
        versions = {row.method: versions_of(row.method) for row in self.methods.values()}
        streams = {
            (protocol, severity): self._domains(dataset, protocol, severity)
            for protocol in self.protocols
            for severity in self.severities
        }
        names = {
            name: {"name": model_name(name), "digest": digest} for name, digest in digests.items()
        }
        grid = product(
            self.severities,
            self.batch_sizes,
            self.seeds,
            self.models,
            self.protocols,
            self.methods.items(),
        )
        return [
            (
                label,
                Job(
                    RunConfig(
                        data=dataset.identity,
                        model=names[model],
                        method=row.method,
                        versions=versions[row.method],
                        options=options[label],
                        protocol=protocol,
                        severity=severity,
                        domains=streams[protocol, severity][0],
                        visits=streams[protocol, severity][1],
                        seed=seed,
                        batch_size=batch_size,
                        clean_after=self._clean_after(protocol),
                        source=sources[label],
                        tokens=self._tokens(row),
                        corruptions=list(self.corruptions),
                        cost=COST if self.kind == EFFICIENCY else {},
                    ),
                    model,
                    self.data,
                ),
            )
            for severity, batch_size, seed, model, protocol, (label, row) in grid
        ]

    def record(self, name: str, command: str, jobs: Sequence[tuple[str, Job]]) -> PlanRecord:
        """Return what a report needs to know of this plan."""
        rows = [(label, job.run.key) for label, job in jobs]
        return PlanRecord(name, self.title or name, self.about, list(self.show), command, rows)

    def _checked_digest(self, reference: str) -> str:
        """Return the digest of a model, after checking that it can do what the plan asks for."""
        model = find_model(reference)
        for protocol in self.protocols:
            _check_modalities(protocol, reference, model)
        for row in self.methods.values():
            check_encoders(find_method(row.method), model)
        return model_digest(model, reference)

    def _domains(
        self, dataset: Dataset, protocol: str, severity: int
    ) -> tuple[dict[str, str], int]:
        """Return the domains of a stream, with a hash of what each does, and the visits."""
        samples = dataset.identity["samples"]
        stops = list(visits(protocol, severity, self.corruptions, samples))
        conditions = dict.fromkeys(c for visit in stops for c in visit.conditions)
        return {
            condition.name: "+".join(dataset.damage(d).fingerprint() for d in condition.domains)
            for condition in conditions
        }, len(stops)

    def _clean_after(self, protocol: str) -> int:
        streamed = self.kind == STREAMS and resets_once(protocol)
        return self.clean_after if streamed else 0

    def _tokens(self, row: MethodRow) -> str:
        return FLOAT32 if find_method(row.method).tunes_encoder else self.tokens


def _check_modalities(protocol: str, name: str, model: nn.Module) -> None:
    """Refuse a protocol that damages a modality that a model does not have."""
    lacking = sorted(sensors(protocol) - set(model.modalities))  # type: ignore[arg-type]
    if lacking:
        raise OptionError(
            f"protocol '{protocol}' damages {', '.join(lacking)}, which the model {name} does not "
            "have: choose other --protocols, or a model such as sounding_shapes_depth_0."
        )


def resolved(row: MethodRow, data: str) -> dict[str, Any]:
    """Return all options of a row: the method's defaults, those for a data set, the row's own."""
    method = find_method(row.method)
    loop = {
        "lr": method.default_lr,
        "steps": 1,
        "predict": method.default_predict,
        "autocast": False,
        "rebalance": 0.0,
        "rebalance_memory": MEMORY,
    }
    own = {name: parameter.default for name, parameter in hyperparameters(method).items()}
    chosen = data_options(data).get(row.method, {}) | row.options
    for name in chosen:
        if name not in loop | own:
            raise OptionError(unknown_name(f"option of {row.method}", name, loop | own))
    options = loop | own | chosen
    if not options["rebalance"]:
        del options["rebalance_memory"]  # it has no effect
    return options


@cache
def data_options(data: str) -> dict[str, dict[str, Any]]:
    """Return the options of each method for a data set: published, or tuned on validation data."""
    path = PLANS / "options" / f"{data}.toml"
    return tomllib.loads(path.read_text()) if path.exists() else {}


def plan_names() -> list[str]:
    """Return the names of the plans that come with the package, such as "paper/ablation"."""
    found = (path.relative_to(PLANS).with_suffix("") for path in PLANS.rglob("*.toml"))
    return sorted(str(name) for name in found if name.parts[0] != "options")


def load_plans(reference: str | Path) -> dict[str, Plan]:
    """Read a plan of the package by name, or a TOML file; a list of plans gives each of them.

    A plan of the package goes by its full name, such as "paper/ablation", a file by its stem.
    """
    path, name = Path(reference), str(reference)
    if path.suffix == ".toml":
        name = path.stem
    elif name in plan_names():
        path = PLANS / f"{name}.toml"
    else:
        raise OptionError(unknown_name("plan", name, plan_names()))
    content = _content(path)
    if "plans" not in content:
        return {name: plan_from(content, str(path))}
    _check_keys(content, ["plans"], f"key of {path}, which lists plans,")
    found: dict[str, Plan] = {}
    for entry in content["plans"]:
        beside = path.parent / entry
        for key, plan in load_plans(beside if beside.suffix == ".toml" else entry).items():
            if key in found:
                raise OptionError(f"{path} lists two plans named {key}: rename one of the files.")
            found[key] = plan
    return found


def load_plan(reference: str | Path) -> Plan:
    """Read one plan."""
    plans = list(load_plans(reference).values())
    if len(plans) != 1:
        raise OptionError(f"{reference} is a list of {len(plans)} plans: name one of them.")
    return plans[0]


def plan_from(content: Mapping[str, Any], where: str) -> Plan:
    """Build a plan from plain data; an unknown key is refused with the nearest right one."""
    _check_keys(content, [*(f.name for f in fields(Plan)), "vary"], f"key of {where}")
    for name, value in content.items():
        if isinstance(getattr(Plan, name, None), tuple) and not isinstance(value, list):
            raise OptionError(f"{where}: {name} is a list, such as [{value!r}].")
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in content.items()
    }
    if "data" in values:
        values["data"] = _data(values["data"], where)
    vary = values.pop("vary", {})
    methods = _rows(content["methods"]) if "methods" in content else Plan().methods
    values["methods"] = methods | _varied(methods, vary, where)
    try:
        return Plan(**values)
    except OptionError as error:
        raise OptionError(f"{where}: {error}") from error


def _content(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise OptionError(f"{path} does not exist: give the path of a plan.") from error
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"{path} is not valid TOML: {error}.") from error


def _data(content: Mapping[str, Any], where: str) -> DataOptions:
    _check_keys(content, [f.name for f in fields(DataOptions)], f"key of [data] in {where}")
    values = dict(content)
    for name in {"root", "frost_dir", "noise_dir"} & set(values):
        values[name] = Path(values[name])
    return DataOptions(**values)


def _rows(content: Sequence[str] | Mapping[str, dict[str, Any]]) -> dict[str, MethodRow]:
    """Return the rows: a list of names, or a table for each label."""
    if not isinstance(content, Mapping):
        return {name: MethodRow(name) for name in content}
    return {
        label: MethodRow(
            options.get("method", label),
            {k: v for k, v in options.items() if k not in ("method", "fit")},
            options.get("fit", 0),
        )
        for label, options in content.items()
    }


def _varied(
    methods: Mapping[str, MethodRow], vary: Mapping[str, Mapping[str, list[Any]]], where: str
) -> dict[str, MethodRow]:
    """Return a further row for each value of each option, all else as in the row it varies."""
    rows: dict[str, MethodRow] = {}
    for label, options in vary.items():
        if label not in methods:
            raise OptionError(unknown_name(f"row varied in {where}", label, methods))
        base = methods[label]
        for option, values in options.items():
            for value in values:
                changed = base.options | {option: value}
                rows[f"{label} {option}={value}"] = replace(base, options=changed)
    return rows


def _check_keys(content: Mapping[str, Any], known: Sequence[str], kind: str) -> None:
    for name in content:
        if name not in known:
            raise OptionError(unknown_name(kind, name, known))


def with_settings(plan: Plan, settings: Sequence[str]) -> Plan:
    """Change options of methods: `dasp.delta=0.03`, or `*.lr=1e-3` for all."""
    methods = dict(plan.methods)
    for setting in settings:
        target, equals, text = setting.partition("=")
        label, dot, option = target.rpartition(".")
        if not (equals and dot):
            raise OptionError(
                f"--set takes METHOD.OPTION=VALUE, such as dasp.delta=0.03, not {setting!r}."
            )
        if label != "*" and label not in methods:
            raise OptionError(unknown_name("method of this plan", label, methods))
        for name in methods if label == "*" else [label]:
            row = methods[name]
            methods[name] = replace(row, options=row.options | {option: _value(text)})
            resolved(methods[name], plan.data.name)
    return replace(plan, methods=methods)


def with_methods(plan: Plan, names: Sequence[str]) -> Plan:
    """Keep these rows of a plan; registered methods and `file.py:Name` become rows of their own."""
    chosen: dict[str, MethodRow] = {}
    for name in names:
        if name in plan.methods:
            chosen[name] = plan.methods[name]
        else:
            method = find_method(name)
            label = method.__name__.lower() if ".py:" in name else name
            chosen[label] = MethodRow(name)
    return replace(plan, methods=chosen)


def of_methods(plan: Plan, names: Sequence[str]) -> Plan:
    """Keep the rows of these methods, whatever their labels."""
    for name in names:
        find_method(name)
    kept = {label: row for label, row in plan.methods.items() if row.method in names}
    return replace(plan, methods=kept)


def _value(text: str) -> Any:
    """Read a value as TOML does, or as a plain word."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
