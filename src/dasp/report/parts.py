"""Parts of a section: tables and figures under one heading."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dasp.report.figures import Figure
from dasp.report.grid import Table

Item = Table | Figure


@dataclass(frozen=True)
class Part:
    """Tables and figures in the order in which they are read; a folded part opens on a click."""

    title: str
    items: Sequence[Item]
    folded: bool = False

    def of_setting(self, name: str) -> "Part":
        """Return this part of one setting among several, named so that they stay apart.

        >>> Part("Runs", [Figure("gain", "", "")]).of_setting("severity 3").items[0].name
        'severity-3-gain'
        """
        if not name:
            return self
        items = [replace(item, name=f"{slug(name)}-{item.name}") for item in self.items]
        return Part(f"{self.title}: {name}", items, self.folded)


def slug(words: str) -> str:
    """Return words as part of a file name: letters, digits, dots, low lines and hyphens.

    >>> slug("Paper/Ablation, batch 64")
    'paper-ablation-batch-64'
    """
    return re.sub(r"[^a-z0-9._]+", "-", words.lower()).strip("-.")


def known(items: Iterable[Item | None]) -> list[Item]:
    """Leave out what there is nothing to draw of."""
    return [item for item in items if item is not None and (isinstance(item, Figure) or item.rows)]
