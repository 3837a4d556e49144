"""The figures of what source models show under shift: redundancy, entropy, confidence."""

from collections.abc import Callable, Sequence

from dasp.bench.indicator_measure import INDICATORS
from dasp.report.figures import Figure, modality_styles
from dasp.report.indicator_curves import batch_size_figure, severity_figure
from dasp.report.indicator_tables import correlation, naming_share, setting
from dasp.report.indicators import (
    SCORES,
    DomainView,
    Indicators,
    average,
    damageable,
    dominant,
    several_severities,
    several_sizes,
    shows_domains,
    usual,
)
from dasp.report.panels import Panel, Series, dot_panels
from dasp.report.runs import CLEAN
from dasp.report.svg import Style

Value = Callable[[DomainView], float]
POINTERS = {
    "entropy": ("entropy, nats", "higher entropy"),
    "confidence": ("confidence", "lower confidence"),
    "released": ("redundancy, released", "higher redundancy (released)"),
    "paper": ("redundancy, paper", "higher redundancy (paper)"),
}


def indicator_figures(views: Sequence[Indicators]) -> list[Figure]:
    """Return the figures that a group of files holds enough for."""
    figures = []
    if shows_domains(views):
        figures += [redundancy_figure(views), *pointing_figures(views)]
    figures += [severity_figure(views)] if several_severities(views) else []
    return figures + ([batch_size_figure(views)] if several_sizes(views) else [])


def redundancy_figure(views: Sequence[Indicators]) -> Figure:
    """Redundancy of each modality by domain, beside its accuracy alone."""
    chosen = usual(views)
    rows = [CLEAN, *(row for name in damageable(chosen) for row in _by_accuracy(chosen, name))]
    together = _values(chosen, rows, lambda domain: 100 * domain.joint / domain.seen)
    accuracy = _each_modality(chosen, rows, lambda name: lambda domain: domain.accuracy(name))
    panels = [
        Panel(f"redundancy, {form}", _each_modality(chosen, rows, _mean_of(form)))
        for form in SCORES
    ]
    panels.append(Panel("accuracy, %", [*accuracy, Series("together", Style(0), together)]))
    found = []
    for name in damageable(chosen):
        values = [correlation(chosen, [name], form)[0] for form in SCORES]
        words = ["–" if value is None else f"{value:.2f}".replace("-", "−") for value in values]
        found.append(f"{name} {words[0]} (released), {words[1]} (paper)")
    caption = (
        f"Redundancy of each modality's features, and its accuracy alone ({setting(chosen)}). A "
        "row damages the modality that it begins with; rows stand by that modality's accuracy. "
        f"Rank correlation of redundancy and accuracy, −1 being best: {'; '.join(found)}."
    )
    return Figure("indicators-redundancy", dot_panels(rows, panels, caption), caption)


def pointing_figures(views: Sequence[Indicators]) -> list[Figure]:
    """What indicators show while the dominant modality is damaged: a figure for each such one.

    Which modality dominates is a matter of each model, so models that differ in it are kept apart.
    """
    chosen = usual(views)
    groups = {name: [v for v in chosen if dominant([v]) == name] for name in damageable(chosen)}
    return [_pointing_figure(group, name) for name, group in groups.items() if group]


def _pointing_figure(views: Sequence[Indicators], damaged: str) -> Figure:
    rows = [CLEAN, *_by_accuracy(views, damaged)]
    panels, shares = [], []
    for indicator, (title, words) in POINTERS.items():
        series = _each_modality(views, rows, _mean_of(indicator))
        misled = [
            row != CLEAN and not _leads(series, damaged, place, INDICATORS[indicator])
            for place, row in enumerate(rows)
        ]
        panels.append(Panel(title, series, misled, f"{words} does not name {damaged}"))
        shares.append(f"{words} in {average(naming_share(views, damaged, indicator)):.0f} %")
    clean = ", ".join(
        f"{name} {average(view.clean.accuracy(name) for view in views):.1f} %"
        for name in views[0].modalities
    )
    caption = (
        f"What each modality shows while {damaged} is damaged, in models in which it dominates "
        f"(alone on clean data: {clean}; {setting(views)}). Shaded: another modality looks more "
        f"shifted, so the indicator misleads. Of these domains {damaged} is named by "
        f"{', by '.join(shares)}."
    )
    return Figure(f"indicators-pointing-{damaged}", dot_panels(rows, panels, caption), caption)


def _by_accuracy(views: Sequence[Indicators], modality: str) -> list[str]:
    """Return the domains that damage a modality, the one it bears best first."""
    rows = list(dict.fromkeys(d.short for view in views for d in view.damaging(modality)))
    values = _values(views, rows, lambda domain: domain.accuracy(modality))
    means = dict(zip(rows, values, strict=True))
    return sorted(rows, key=lambda row: -means[row])


def _each_modality(
    views: Sequence[Indicators], rows: Sequence[str], value_of: Callable[[str], Value]
) -> list[Series]:
    look = modality_styles(views[0].modalities)
    return [Series(name, look[name], _values(views, rows, value_of(name))) for name in look]


def _values(views: Sequence[Indicators], rows: Sequence[str], value: Value) -> list[float]:
    """Return the mean over models of a value in each row's domain."""
    return [
        average(value(domain) for view in views for domain in view.domains if domain.short == row)
        for row in rows
    ]


def _mean_of(indicator: str) -> Callable[[str], Value]:
    return lambda name: lambda domain: domain.sights[name].means[indicator]


def _leads(series: Sequence[Series], name: str, place: int, sign: int) -> bool:
    """Tell whether one series lies beyond all others in a row."""
    values = {entry.name: sign * entry.values[place] for entry in series}
    mine = values.pop(name)
    return all(mine > other for other in values.values())
