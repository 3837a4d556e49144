"""Figures that papers published, kept apart from measured ones, and tables that compare the two.

The data files beside this one hold them as printed. `published_tables` and `claims` read them;
`published_table`, `published_domains_table` and `claims_table` set them beside a group's own.
"""

from dasp.report.published.load import (
    Claim,
    PublishedRow,
    PublishedTable,
    claims,
    published_tables,
)
from dasp.report.published.tables import claims_table, published_domains_table, published_table

__all__ = [
    "Claim",
    "PublishedRow",
    "PublishedTable",
    "claims",
    "claims_table",
    "published_domains_table",
    "published_table",
    "published_tables",
]
