"""Redundancy against severity and against batch size."""

import math
from collections.abc import Mapping, Sequence

from dasp.report.figures import Figure, modality_styles
from dasp.report.indicators import (
    SCORES,
    Indicators,
    average,
    damageable,
    how_many_models,
    usual_size,
)
from dasp.report.panels import Panel, Series, line_panels
from dasp.report.svg import Style

FAMILIES = (8, 2, 3, 7, 5, 6, 9, 10)  # places of the palette
CLEAN = (1, 4, 9, 5)  # near the colours that the modalities have where they are damaged
REFERENCE = Style(0, 1.6, marked=False)

Levels = Mapping[int, Sequence[Indicators]]
"""The files of each severity, or of each batch size, in rising order."""


def severity_figure(views: Sequence[Indicators]) -> Figure:
    """Redundancy from clean (0) to the highest severity, by kind of corruption."""
    size = usual_size(views)
    mine = [view for view in views if view.batch_size == size]
    levels = {
        level: [view for view in mine if view.severity == level]
        for level in sorted({view.severity for view in mine})
    }
    families = dict.fromkeys(str(d.family) for view in mine for d in view.domains if d.damaged)
    look = {name: Style(FAMILIES[n % len(FAMILIES)]) for n, name in enumerate(families)}
    names, highest = damageable(mine), max(levels)
    panels = [
        Panel(f"{name} damaged, {form} form", _severity_lines(levels, name, form, look))
        for form in SCORES
        for name in names
    ]
    rising = [
        f"{name} " + ", ".join(f"{_risen(levels[highest], name, form)} ({form})" for form in SCORES)
        for name in names
    ]
    caption = (
        f"Redundancy of the damaged modality against severity, 0 being clean (batch {size}, "
        f"{how_many_models(mine)}); a line is the mean over one kind of corruption. Corruptions "
        f"whose redundancy at severity {highest} exceeds that of clean data: {'; '.join(rising)}."
    )
    axis = [(float(level), str(level)) for level in (0, *levels)]
    drawing = line_panels(axis, "severity", panels, caption)
    return Figure("indicators-severity", drawing, caption)


def batch_size_figure(views: Sequence[Indicators]) -> Figure:
    """Redundancy by batch size, clean and damaged, over what pure noise would give."""
    severity = max(view.severity for view in views)
    mine = [view for view in views if view.severity == severity]
    levels = {
        size: [view for view in mine if view.batch_size == size]
        for size in sorted({view.batch_size for view in mine})
    }
    panels = [Panel(f"{form} form", _batch_size_lines(levels, form)) for form in SCORES]
    found = []
    for name in damageable(mine):
        for size in (min(levels), max(levels)):
            gaps = [
                _damaged_mean(levels[size], name, form) - _clean_mean(levels[size], name, form)
                for form in SCORES
            ]
            words = [f"{gap:+.3f}".replace("-", "−") for gap in gaps]
            found.append(f"{name} {words[0]} (released), {words[1]} (paper) at {size}")
    caption = (
        f"Redundancy against batch size (severity {severity}, {how_many_models(mine)}; damaged: "
        "mean over all corruptions of that modality). Grey: Gaussian noise of the same width, "
        f"whose dimensions have nothing in common. Damaged minus clean: {'; '.join(found)}."
    )
    axis = [(math.log2(size), str(size)) for size in levels]
    drawing = line_panels(axis, "batch size", panels, caption)
    return Figure("indicators-batch-size", drawing, caption)


def _severity_lines(
    levels: Levels, name: str, form: str, look: Mapping[str, Style]
) -> list[Series]:
    """Return a line a kind of corruption, and one of the modalities that stay undamaged."""
    first = next(iter(levels.values()))
    clean = _clean_mean(first, name, form)
    lines = []
    for family in dict.fromkeys(str(d.family) for view in first for d in view.damaging(name)):
        values = [
            average(
                domain.sights[name].means[form]
                for view in views
                for domain in view.damaging(name)
                if domain.family == family
            )
            for views in levels.values()
        ]
        lines.append(Series(family, look[family], [clean, *values]))
    others = [other for other in first[0].modalities if other != name]
    if others:
        rest = [
            average(
                domain.sights[other].means[form]
                for view in views
                for domain in view.damaging(name)
                for other in others
            )
            for views in levels.values()
        ]
        start = average(view.clean.sights[other].means[form] for view in first for other in others)
        lines.insert(0, Series("undamaged modality", REFERENCE, [start, *rest]))
    return lines


def _batch_size_lines(levels: Levels, form: str) -> list[Series]:
    """Return each modality damaged and clean, and the noise floor."""
    every = [view for views in levels.values() for view in views]
    damaged = modality_styles(every[0].modalities)
    clean = {name: Style(CLEAN[n % len(CLEAN)]) for n, name in enumerate(damaged)}
    lines = []
    for name in damageable(every):
        for title, style, mean in (
            ("damaged", damaged[name], _damaged_mean),
            ("clean", clean[name], _clean_mean),
        ):
            values = [mean(views, name, form) for views in levels.values()]
            lines.append(Series(f"{name}, {title}", style, values))
    floor = [average(view.noise_floor[form] for view in views) for views in levels.values()]
    return [Series("uncorrelated noise", REFERENCE, floor), *lines]


def _damaged_mean(views: Sequence[Indicators], name: str, form: str) -> float:
    return average(d.sights[name].means[form] for view in views for d in view.damaging(name))


def _clean_mean(views: Sequence[Indicators], name: str, form: str) -> float:
    return average(view.clean.sights[name].means[form] for view in views)


def _risen(views: Sequence[Indicators], name: str, form: str) -> str:
    """Say in how many corruptions the mean over models lies above the clean one."""
    clean = _clean_mean(views, name, form)
    values: dict[str, list[float]] = {}
    for view in views:
        for domain in view.damaging(name):
            values.setdefault(domain.name, []).append(domain.sights[name].means[form])
    return f"{sum(average(found) > clean for found in values.values())} of {len(values)}"
