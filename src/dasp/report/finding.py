"""What a section found, in one line."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from dasp.report.diagnosis_sizes import sizes_verdicts
from dasp.report.efficiencies import Efficiency
from dasp.report.flag_figures import best_indicator, rates_of
from dasp.report.flag_tables import sizes
from dasp.report.flags import QUIET, Flags, flag_groups
from dasp.report.grid import Quantity
from dasp.report.groups import SOURCE, Group, mean_std
from dasp.report.indicator_tables import TITLES, naming_share
from dasp.report.indicators import Indicators, usual
from dasp.report.robustness_verdicts import robustness_verdicts
from dasp.report.sections import JUDGED, Section
from dasp.report.stretches import stretches_verdicts
from dasp.report.tables import accuracies, paired_gains, pretty

VERDICTS = {
    "robustness": robustness_verdicts,
    "stretches": stretches_verdicts,
    "diagnosis": sizes_verdicts,
}


def finding(section: Section) -> str:
    """Return the best method and its gain over Source; of several settings, how often it is best.

    Then, a line each, what the plan asks to be judged. Of other kinds of measurement, the
    numbers that they are made for.
    """
    if not section.groups:
        return _naming(section.indicators) + _flagging(section.flags) + _cost(section.efficiencies)
    lines = [] if section.plan.kind == JUDGED else [_best(section)]
    for name, judge in VERDICTS.items():
        lines += judge(section) if name in section.asked else []
    return "\n".join(line for line in lines if line)


def _best(section: Section) -> str:
    if len(section.groups) == 1:
        return _sentence(section.groups[0])
    wins = Counter(
        label for group in section.groups for _, labels in _ranked(group)[:1] for label in labels
    )
    whole = len(section.groups)
    words = [f"{label} in {times} of {whole} settings" for label, times in wins.most_common(3)]
    return f"Best: {', '.join(words)}." if words else ""


def _sentence(group: Group) -> str:
    name = _judged(group)
    ranked = _ranked(group)
    if not ranked:
        return ""  # so far no method has run all protocols
    (accuracy, (best, *level)), *others = ranked
    where = f"mean of {len(group.shifted)} protocols" if name == "average" else pretty(name)
    gains = paired_gains(group, name)
    words = f"Best: {best}, {accuracy:.1f} % ({where})"
    words += f", {_gain(gains[best])} over Source" if best in gains else ""
    words += f"; level with it: {', '.join(level)}" if level else ""
    rest = [label for _, labels in others for label in labels if label in gains]
    if rest:
        words += f"; next: {rest[0]}, {_gain(gains[rest[0]])}"
    return f"{words}."


def _gain(gains: list[float]) -> str:
    return Quantity(*mean_std(gains), signed=True).text


def _judged(group: Group) -> str:
    """Return the column of the main table that methods are ranked by."""
    if len(group.shifted) > 1:
        return "average"
    return (group.shifted or group.protocols)[0]


def _ranked(group: Group) -> list[tuple[float, list[str]]]:
    """Return (accuracy, labels) from the best down, as rounded for a reader.

    Only labels with as many replicates as the fullest one are ranked.
    """
    each = {label: accuracies(group, label, _judged(group)) for label in group.labels}
    fullest = max(len(values) for values in each.values())
    means = {label: mean_std(values.values())[0] for label, values in each.items()}
    full = {n: m for n, m in means.items() if m is not None and len(each[n]) == fullest}
    ranked: dict[float, list[str]] = {}
    for label in sorted(full, key=lambda label: -full[label]):
        ranked.setdefault(round(full[label], 1), []).append(label)
    return list(ranked.items())


def _naming(found: Sequence[Indicators]) -> str:
    """Say how often each indicator names the damaged modality, the best one first."""
    if not found:
        return ""
    views = usual(found)
    each = {title: naming_share(views, "any", key) for key, title in TITLES.items()}
    shares = {title: fmean(found) for title, found in each.items() if found}
    ranked = sorted(shares, key=lambda title: -shares[title])
    words = [f"{shares[title]:.0f} % of domains by {title}" for title in ranked]
    return f"Damage is named rightly in {', '.join(words)}." if words else ""


def _flagging(found: Sequence[Flags]) -> str:
    """Say which indicator hits most often, of the first data set if there are several."""
    if not found:
        return ""
    views = flag_groups(found)[0]
    best, size = best_indicator(views), sizes(views)[0]
    rates = rates_of(views, size)
    hits = fmean(rates.hits(rates.quiet_spot(best)) or [0.0])
    return (
        f"Most damage is flagged by {views[0].indicators[best]}: in {hits:.0f} % of damaged "
        f"batches of {size}, with {100 - QUIET:.0f} % false alarms at most, shuffled or sorted."
    )


def _cost(found: Sequence[Efficiency]) -> str:
    """Say how long each method takes beside Source, the fastest first."""
    ratios: dict[str, list[float]] = {}
    for entry in found:
        if entry.cell["method"] != SOURCE:
            ratios.setdefault(entry.label, []).extend(entry.ratios())
    ranked = sorted(ratios, key=lambda label: fmean(ratios[label]))
    words = [f"{label} {fmean(ratios[label]):.1f} ×" for label in ranked]
    return f"Time beside Source: {', '.join(words)}." if words else ""
