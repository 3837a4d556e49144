"""Plans: which methods, models, protocols and data are run, read from TOML files and flags."""

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from dasp.bench.datasets import SOURCE_SAMPLES, DataOptions, Dataset, check_types
from dasp.bench.features import FLOAT32, digest_on
from dasp.bench.references import find_method, find_model, model_names, versions_of
from dasp.bench.results import RunConfig
from dasp.core.errors import ContractError, OptionError, cause, unknown_name
from dasp.methods import METHODS, adapt, hyperparameters
from dasp.methods.base import check_encoders, one_of, whole
from dasp.methods.rebalance import MEMORY
from dasp.models import Toy
from dasp.streams.domains import SEVERITIES
from dasp.streams.protocols import PROTOCOLS, Visit, resets_once, sensors, visits

PLANS = Path(str(files("dasp") / "plans"))
MAIN_PROTOCOLS = PROTOCOLS[:5]
SHOWN = (
    "comparison", "published", "forgetting", "sensitivity", "details", "robustness", "stretches",
    "diagnosis", "batch_size", "efficiency", "together",
)  # fmt: skip
"""What a plan may ask a report to show."""
FEW_PER_DOMAIN = 64  # samples of a domain below which figures are of little use
YEAR = 10**10  # samples that a processor adapts to in a year, at 300 per second
STREAMS, EFFICIENCY = "streams", "efficiency"
COST = {"rounds": 5, "threads": 1}  # several threads would wait for each other on a busy machine

Names = tuple[str, ...]


@dataclass(frozen=True)
class MethodRow:
    """One row of a table: a method and the options that differ from those of the data set."""

    method: str
    options: dict[str, Any] = field(default_factory=dict)
    fit: int = 0  # clean training samples that the method is fitted with; 0: as many as it needs

    def __post_init__(self) -> None:
        check_types(self)
        whole(0, fit=self.fit)


@dataclass(frozen=True)
class Job:
    """One run that is to be done, and where its model and its data are found."""

    run: RunConfig
    model: str  # as the user wrote it
    data: DataOptions

    @property
    def name(self) -> str:
        """Return what a progress bar calls it."""
        return f"{self.run.protocol} {self.run.method} {self.run.model['name']}"

    def visits(self) -> Iterator[Visit]:
        """Yield the visits of its stream."""
        run = self.run
        return visits(run.protocol, run.severity, run.corruptions, run.data["samples"])


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
    other domain), recurring (interleaved 20 times), long (100,000 samples), once and once_mixed
    (interleaved and mixed, with each sample in one domain only). For models with three sensors also
    per_domain/depth, continual/depth, interleaved/depth; of body-worn sensors such as
    per_domain/gyroscope or missing/torso, and interleaved, pairs, mixed, dirichlet, sorted,
    stretches, once and once_mixed with /sensors or /units behind it."""
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
        check_types(self)
        _check_names("name in show", self.show, SHOWN)
        whole(0, clean_after=self.clean_after)
        for size in self.batch_sizes:
            whole(batch_sizes=size)
        for seed in self.seeds:
            if not 0 <= seed < 2**31:
                raise OptionError(f"seeds are integers from 0 to {2**31 - 1}, not {seed}.")
        for severity in self.severities:
            one_of("severity of a plan (severities)", severity, *SEVERITIES)

    def jobs(self) -> list[tuple[str, Job]]:
        """Return (label of the row, job) of every run; wrong names and options are refused here."""
        dataset = self.data.open()
        data = dataset.identity
        rows = {label: self._row_settings(row, dataset) for label, row in self.methods.items()}
        known = {name: self._checked_model(name, dataset, rows) for name in self.models}
        digests = {name: digest for name, (digest, _) in known.items()}
        names = model_names(digests)
        pairs = product(self.protocols, self.severities)
        streams = {pair: self._stream_settings(*pair, dataset, data["samples"]) for pair in pairs}
        self._check_size(data["samples"], rows.values(), streams.values())
        cost = COST if self.kind == EFFICIENCY else {}
        jobs = []
        for severity, batch_size, seed, model, protocol, label in product(
            self.severities, self.batch_sizes, self.seeds, self.models, self.protocols, self.methods
        ):
            order = {"seed": seed, "batch_size": batch_size, "corruptions": list(self.corruptions)}
            settings = rows[label] | streams[protocol, severity] | order
            settings["tokens"] = FLOAT32 if label in known[model][1] else self.tokens
            which = {"name": names[model], "digest": digests[model]}
            jobs.append(
                (label, Job(RunConfig(data, which, cost=cost, **settings), model, self.data))
            )
        return jobs

    def _check_size(self, samples: int, rows: Collection[Any], streams: Collection[Any]) -> None:
        """Refuse a plan that would not end within a year."""
        often = len(self.models) * len(self.seeds) * len(self.batch_sizes)
        passes = sum(row["options"]["steps"] for row in rows)
        total = often * passes * samples * sum(stream["visits"] for stream in streams)
        total += often * len(streams) * sum(row["source"].get("samples", 0) for row in rows)
        if total > YEAR:
            raise OptionError(
                f"this plan adapts to {total:.0e} samples, which takes more than a year: lower "
                "samples, or the number of protocols, seeds, models or steps."
            )

    def _row_settings(self, row: MethodRow, dataset: Dataset) -> dict[str, Any]:
        """Return the fields of a run that follow from its method."""
        method = find_method(row.method)
        check_options(row, self.data.name)
        count = row.fit or (SOURCE_SAMPLES if method.needs_source else 0)
        return {
            "method": row.method,
            "versions": versions_of(row.method),
            "options": resolved(row, self.data.name),
            "source": dataset.source(count).identity if count else {},
        }

    def _checked_model(
        self, reference: str, dataset: Dataset, rows: Mapping[str, Any]
    ) -> tuple[str, set[str]]:
        """Return the digest of a model, and which rows read its raw inputs.

        Check before that it can do what the plan asks.
        """
        model = find_model(reference)
        for protocol in self.protocols:
            lacking = sorted(sensors(protocol) - set(model.modalities))  # type: ignore[arg-type]
            if lacking:
                raise OptionError(
                    f"protocol '{protocol}' damages {', '.join(lacking)}, which the model "
                    f"{reference} does not have: choose other --protocols, or a model such as "
                    "sounding_shapes_depth_0."
                )
        for row in self.methods.values():
            check_encoders(find_method(row.method), model)
        raw = {
            label
            for label, row in rows.items()
            if find_method(row["method"]).reads_inputs(model, **row["options"])
        }
        return digest_on(dataset, model, reference), raw

    def _stream_settings(
        self, protocol: str, severity: int, dataset: Dataset, samples: int
    ) -> dict[str, Any]:
        """Return the fields of a run that follow from its stream."""
        stops = list(visits(protocol, severity, self.corruptions, samples))
        if (shares := max(visit.shares for visit in stops)) > samples:
            raise OptionError(
                f"protocol '{protocol}' deals its samples out to {shares} domains, and there are "
                f"only {samples}: give at least {shares}, better {FEW_PER_DOMAIN * shares}, by "
                "--samples."
            )
        conditions = dict.fromkeys(c for visit in stops for c in visit.conditions)
        forgets = self.kind == STREAMS and resets_once(protocol)
        return {
            "protocol": protocol,
            "severity": severity,
            "domains": {
                condition.name: "+".join(dataset.damage(d).fingerprint() for d in condition.domains)
                for condition in conditions
            },
            "visits": len(stops),
            "clean_after": self.clean_after if forgets else 0,
        }


def _check_names(kind: str, names: Iterable[str], known: Collection[str]) -> None:
    """Refuse a name that is not known; the error suggests the nearest one."""
    for name in names:
        if name not in known:
            raise OptionError(unknown_name(kind, name, known))


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
    _check_names(f"option of {row.method}", chosen, loop | own)
    options = loop | own | chosen
    if not options["rebalance"]:
        del options["rebalance_memory"]  # it has no effect
    return options


def check_options(row: MethodRow, data: str) -> None:
    """Refuse values that a registered method refuses, by adapting a toy with them."""
    if ".py:" in row.method:
        return  # a user's own may need a model of its own
    options = resolved(row, data)
    if options.get("stream_length", 1) is None:
        options["stream_length"] = 1  # the run fills it in
    try:
        adapt(Toy(depth=1), row.method, **options)
    except ContractError:
        return  # it needs more than a toy has: the run will tell
    except (TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise OptionError(f"options of {row.method}, {row.options}: {cause(error)}.") from error


@cache
def data_options(data: str) -> dict[str, dict[str, Any]]:
    """Return the options of each method for a data set: published, or tuned on validation data."""
    path = PLANS / "options" / f"{data}.toml"
    return tomllib.loads(path.read_text()) if path.exists() else {}


def plan_names() -> list[str]:
    """Return the names of the plans that come with the package, such as "paper/ablation"."""
    found = (path.relative_to(PLANS).with_suffix("") for path in PLANS.rglob("*.toml"))
    return sorted(str(name) for name in found if name.parts[0] != "options")


def load_plans(reference: str | Path, within: Names = ()) -> dict[str, Plan]:
    """Read a plan of the package by name, or a TOML file; a list of plans gives each of them.

    A plan of the package goes by its full name, such as "paper/ablation", a file by its stem.
    `within` are the lists that name it.
    """
    path, name = Path(reference), str(reference)
    if path.suffix == ".toml":
        name = path.stem
    else:
        _check_names("plan", [name], plan_names())
        path = PLANS / f"{name}.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise OptionError(f"{path} does not exist: give the path of a plan.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise OptionError(f"{path} is not valid TOML: {cause(error)}.") from error
    if "plans" not in content:
        return {name: plan_from(content, str(path))}
    _check_names(f"key of {path}, which lists plans,", content, ["plans"])
    within, entries = (*within, str(path.resolve())), content["plans"]
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise OptionError(f"{path}: plans is a list of names and files, not {entries!r}.")
    found: dict[str, Plan] = {}
    for entry in entries:
        beside = path.parent / entry
        if str(beside.resolve()) in within:
            raise OptionError(f"{path}: plans lists {entry}, which lists this file: remove it.")
        inner = load_plans(beside if beside.suffix == ".toml" else entry, within)
        if twice := found.keys() & inner.keys():
            raise OptionError(
                f"{path} lists two plans named {min(twice)}: rename one of the files."
            )
        found |= inner
    return found


def load_plan(reference: str | Path) -> Plan:
    """Read one plan."""
    plans = list(load_plans(reference).values())
    if len(plans) != 1:
        raise OptionError(f"{reference} is a list of {len(plans)} plans: name one of them.")
    return plans[0]


def plan_from(content: Mapping[str, Any], where: str) -> Plan:
    """Build a plan from plain data; an unknown key is refused with the nearest right one."""
    try:
        _check_names("key", content, [*(f.name for f in fields(Plan)), "vary"])
        values = {name: _plain(name, value) for name, value in content.items()}
        data, vary = (_table(name, values.pop(name, {})) for name in ("data", "vary"))
        _check_names("key of [data]", data, [f.name for f in fields(DataOptions)])
        paths = {"root", "frost_dir", "noise_dir"} & {k for k, v in data.items() if type(v) is str}
        methods = _rows(content["methods"]) if "methods" in content else Plan().methods
        values["methods"] = methods | _varied(methods, vary)
        return Plan(data=DataOptions(**data | {k: Path(data[k]) for k in paths}), **values)
    except OptionError as error:
        raise OptionError(f"{where}: {error}") from error


def _plain(name: str, value: Any) -> Any:
    """Return the value of a field: of a list, a tuple."""
    if isinstance(getattr(Plan, name, None), tuple) and not isinstance(value, list):
        raise OptionError(f"{name} is a list, such as [{value!r}].")
    return tuple(_plain("", item) for item in value) if isinstance(value, list) else value


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise OptionError(f"{name} is a table, not {value!r}.")
    return value


def _rows(content: Any) -> dict[str, MethodRow]:
    """Return the rows: a list of names, or a table for each label."""
    if isinstance(content, list) and all(isinstance(name, str) for name in content):
        return {name: MethodRow(name) for name in content}
    rows = {}
    for label, table in _table("methods, unless it is a list of names,", content).items():
        options = dict(_table(f"methods.{label}", table))
        method, fit = options.pop("method", label), options.pop("fit", 0)
        rows[label] = MethodRow(method, options, fit)
    return rows


def _varied(methods: Mapping[str, MethodRow], vary: Mapping[str, Any]) -> dict[str, MethodRow]:
    """Return a further row for each value of each option, all else as in the row it varies."""
    _check_names("row in vary", vary, methods)
    rows = {}
    for label, options in vary.items():
        for option, values in _table(f"vary.{label}", options).items():
            if not isinstance(values, list):
                raise OptionError(f"vary.{label}.{option} is a list of values, not {values!r}.")
            for value in values:
                rows[f"{label} {option}={value}"] = _changed(methods[label], option, value)
    return rows


def _changed(row: MethodRow, option: str, value: Any) -> MethodRow:
    return replace(row, options=row.options | {option: value})


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
        chosen = list(methods) if label == "*" else [label]
        _check_names("method of this plan", chosen, methods)
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text  # a plain word
        for name in chosen:
            methods[name] = _changed(methods[name], option, value)
            resolved(methods[name], plan.data.name)
    return replace(plan, methods=methods)


def with_methods(plan: Plan, names: Sequence[str]) -> Plan:
    """Keep these rows of a plan; registered methods and `file.py:Name` become rows of their own."""
    chosen: dict[str, MethodRow] = {}
    for name in names:
        if name in plan.methods:
            chosen[name] = plan.methods[name]
        else:
            label = find_method(name).__name__.lower()
            chosen[label if ".py:" in name else name] = MethodRow(name)
    return replace(plan, methods=chosen)


def of_methods(plan: Plan, names: Sequence[str]) -> Plan:
    """Keep the rows of these methods, whatever their labels."""
    for name in names:
        find_method(name)
    kept = {label: row for label, row in plan.methods.items() if row.method in names}
    return replace(plan, methods=kept)
