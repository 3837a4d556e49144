"""How far each indicator can be trusted, in numbers: does it follow accuracy, does it name."""

from collections.abc import Iterable, Sequence

from dasp.bench.indicator_measure import INDICATORS
from dasp.report.grid import Cell, Column, Quantity, Table
from dasp.report.groups import mean_std
from dasp.report.indicators import (
    DomainView,
    Indicators,
    damageable,
    dominant,
    how_many_models,
    several_severities,
    several_sizes,
    shows_domains,
    usual,
    usual_size,
)

TITLES = {
    "entropy": "higher entropy",
    "confidence": "lower confidence",
    "released": "higher redundancy (released)",
    "paper": "higher redundancy (paper)",
}

ROLES = ("dominant", "other")
ANY = "any"
DOMINANT = "dominant: the modality that a model is right by most often, alone on clean data"


def indicator_tables(views: Sequence[Indicators]) -> list[Table]:
    """Return every table of a group of files."""
    tables = []
    if shows_domains(views):
        tables += [naming_table(views), correlation_table(views)]
    if several_severities(views):
        tables.append(naming_by_severity_table(views))
    if several_sizes(views):
        tables.append(naming_by_batch_size_table(views))
    return tables


def naming_table(views: Sequence[Indicators]) -> Table:
    """How often each indicator names the damaged modality, by which one is damaged."""
    chosen = usual(views)
    rows = [
        (Cell(damaged), *_naming_cells(chosen, damaged))
        for damaged in (*damageable(chosen), *ROLES, ANY)
    ]
    return _naming("damaged", ("damaged",), rows, f"{setting(chosen)}; {DOMINANT}")


def naming_by_severity_table(views: Sequence[Indicators]) -> Table:
    """How often each indicator names the damaged modality, by severity and what is damaged."""
    size = usual_size(views)
    mine = [view for view in views if view.batch_size == size]
    rows = []
    for level in sorted({view.severity for view in mine}):
        found = [view for view in mine if view.severity == level]
        rows += [(Cell(str(level)), Cell(role), *_naming_cells(found, role)) for role in ROLES]
    where = f"batch {size}, {how_many_models(mine)}; {DOMINANT}"
    return _naming("severity", ("severity", "damaged"), rows, where)


def naming_by_batch_size_table(views: Sequence[Indicators]) -> Table:
    """How often each indicator names the damaged modality, by batch size."""
    severity = max(view.severity for view in views)
    mine = [view for view in views if view.severity == severity]
    rows = []
    for size in sorted({view.batch_size for view in mine}):
        found = [view for view in mine if view.batch_size == size]
        rows.append((Cell(str(size)), *_naming_cells(found, ANY)))
    where = f"severity {severity}, {how_many_models(mine)}"
    return _naming("batch-size", ("batch size",), rows, where)


def correlation_table(views: Sequence[Indicators]) -> Table:
    """Rank correlation of each indicator with the accuracy of the modality alone."""
    chosen = usual(views)
    names = damageable(chosen)
    groups = [*((name, [name]) for name in names), *([("all", names)] if len(names) > 1 else [])]
    rows = []
    for title, mine in groups:
        cells = [
            Cell(quantities=(Quantity(*correlation(chosen, mine, key), digits=2, signed=True),))
            for key in INDICATORS
        ]
        rows.append((Cell(title), *cells))
    return Table(
        "indicators-correlation",
        f"Rank correlation of an indicator with accuracy alone, over clean data and the domains "
        f"that damage a modality ({setting(chosen)})",
        (Column("modality"), *(Column(name, ("correlation",)) for name in INDICATORS)),
        tuple(rows),
    )


def naming_share(views: Iterable[Indicators], damaged: str, indicator: str) -> list[float]:
    """Return, for each view, the per cent of domains of `damaged` that are named rightly.

    `damaged` is a modality; "dominant", the one that this model knows most by; "other"; or "any".
    """
    shares = []
    for view in views:
        domains = _domains(view, damaged)
        hits = sum(domain.points_at(indicator) == domain.damaged for domain in domains)
        shares += [100 * hits / len(domains)] if domains else []
    return shares


def correlation(
    views: Iterable[Indicators], modalities: Sequence[str], indicator: str
) -> tuple[float | None, float | None]:
    """Return mean and deviation over models of an indicator's rank correlation with accuracy."""
    found = []
    for view in views:
        points = [
            (domain.sights[name].means[indicator], domain.accuracy(name))
            for name in modalities
            for domain in [view.clean, *view.damaging(name)]
        ]
        value = rank_correlation([x for x, _ in points], [y for _, y in points])
        found += [] if value is None else [value]
    return mean_std(found)


def rank_correlation(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation, ties sharing their mean rank; None if one is constant.

    >>> rank_correlation([1.0, 2.0, 9.0], [3.0, 2.0, 1.0])
    -1.0
    """
    a, b = _ranks(xs), _ranks(ys)
    middle = (len(a) - 1) / 2
    both = sum((x - middle) * (y - middle) for x, y in zip(a, b, strict=True))
    alone = sum((x - middle) ** 2 for x in a) * sum((y - middle) ** 2 for y in b)
    return both / alone**0.5 if alone else None


def setting(views: Sequence[Indicators]) -> str:
    """Say at which severity and batch size, and on how many models."""
    first = views[0]
    return f"severity {first.severity}, batch {first.batch_size}, {how_many_models(views)}"


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    return [order.index(value) + (order.count(value) - 1) / 2 for value in values]


def _naming(name: str, first: Sequence[str], rows: Sequence[tuple[Cell, ...]], where: str) -> Table:
    """Return a table of naming shares whose rows differ in the `first` columns."""
    return Table(
        f"indicators-naming-by-{name}",
        "Share of domains, and of batches, in which an indicator names the damaged modality, in % "
        f"({where})",
        (
            *(Column(title) for title in first),
            *(Column(TITLES[key], ("domains", "batches")) for key in INDICATORS),
        ),
        tuple(rows),
    )


def _naming_cells(views: Sequence[Indicators], damaged: str) -> list[Cell]:
    cells = []
    for indicator in INDICATORS:
        by_batch = []
        for view in views:
            domains = _domains(view, damaged)
            hits = sum(d.sights[str(d.damaged)].named[indicator] for d in domains)
            by_batch += [100 * hits / sum(d.batches for d in domains)] if domains else []
        shares = naming_share(views, damaged, indicator)
        cells.append(Cell(quantities=(Quantity(*mean_std(shares)), Quantity(*mean_std(by_batch)))))
    return cells


def _domains(view: Indicators, damaged: str) -> list[DomainView]:
    own = dominant([view])
    others = [name for name in view.modalities if name != own]
    roles = {ANY: view.modalities, "dominant": [own], "other": others}
    return [domain for name in roles.get(damaged, [damaged]) for domain in view.damaging(name)]
