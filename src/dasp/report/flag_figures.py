"""What indicators flag, drawn: all of them by severity, and two of them by domain."""

from collections.abc import Sequence
from math import nan

from dasp.report.figures import Figure
from dasp.report.flag_tables import SHUFFLED, SORTED, damageable, severities, sizes
from dasp.report.flags import QUIET, Flags, Rates, Spot
from dasp.report.indicators import average, how_many_models
from dasp.report.panels import Panel, Series, dot_panels
from dasp.report.svg import Style

OWN = "profile"  # what DASP's robust variant goes by
LOOKS = (8, 2, 3, 7, 4)  # of the severities


def flag_figures(views: Sequence[Flags]) -> list[Figure]:
    """Return both figures of a group of files."""
    return [hits_figure(views), domains_figure(views)]


def hits_figure(views: Sequence[Flags]) -> Figure:
    """Hit rate of each indicator by severity, a panel a batch size."""
    names = views[0].indicators
    panels = []
    for size in sizes(views):
        rates = rates_of(views, size)
        spots = [rates.quiet_spot(place) for place in range(len(names))]
        panels.append(_panel(f"batches of {size}", rates, [(spot, "") for spot in spots]))
    caption = (
        "Batches in which the damaged modality is flagged, in %, by severity "
        f"({how_many_models(views)}), at the lowest threshold with which {QUIET:.0f} % of batches "
        "have no false alarm, shuffled and sorted by class alike. No dots: no threshold does that."
    )
    return Figure("flags-hits", dot_panels(names, panels, caption, left=206), caption)


def domains_figure(views: Sequence[Flags]) -> Figure:
    """Hit rate in each domain, shuffled, of the best indicator and of the one that DASP uses."""
    size = sizes(views)[0]
    rates = Rates([view for view in views if view.batch_size == size], [SHUFFLED])
    names = dict.fromkeys(name for view in views for name in _domains(view))
    rows = [name for modality in damageable(views) for name in names if name.startswith(modality)]
    titles = list(views[0].indicators)
    places = dict.fromkeys([best_indicator(views), *(i for i, t in enumerate(titles) if t == OWN)])
    panels = [
        _panel(titles[place], rates, [(rates.quiet_spot(place), row) for row in rows])
        for place in places
    ]
    caption = (
        f"Batches of {size}, shuffled, in which the damaged modality is flagged, in %, by domain "
        f"and severity ({how_many_models(views)}), at the lowest threshold with which "
        f"{QUIET:.0f} % of such batches have no false alarm."
    )
    words = [row.strip("/").replace("/", " ").replace("_", " ") for row in rows]
    return Figure("flags-domains", dot_panels(words, panels, caption, left=186), caption)


def best_indicator(views: Sequence[Flags]) -> int:
    """Return the place of the one that hits most in the largest batches, of those quiet enough."""
    rates = rates_of(views, sizes(views)[0])
    spots = [rates.quiet_spot(place) for place in range(len(views[0].indicators))]
    return max(spots, key=lambda spot: (rates.is_quiet(spot), average(rates.hits(spot))))[0]


def rates_of(views: Sequence[Flags], size: int) -> Rates:
    """Return the rates in batches of one size, in all orders."""
    mine = [view for view in views if view.batch_size == size]
    return Rates(mine, [order for order in (SHUFFLED, SORTED) if order in mine[0].orders])


def _domains(view: Flags) -> list[str]:
    """Return what its domains begin with, whatever their severity: "video/fog/"."""
    order = next(iter(view.orders.values()))
    return [name.rpartition("/")[0] + "/" for name in order.domains]


def _panel(title: str, rates: Rates, rows: Sequence[tuple[Spot, str]]) -> Panel:
    """Return the hit rates in each row, of a spot and a domain, by severity."""
    series = []
    for severity, look in zip(severities(rates.views), LOOKS, strict=False):
        values = [
            average(rates.hits(spot, severity, domain)) if rates.is_quiet(spot) else nan
            for spot, domain in rows
        ]
        series.append(Series(f"severity {severity}", Style(look), values))
    return Panel(title, series)
