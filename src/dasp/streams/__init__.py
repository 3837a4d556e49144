"""Domains and the streams that visit them: clips corrupted while loading or on disk.

A `Domain` is (modality, corruption, severity). `domain_dataset` returns its clips as a data set
for `dasp.data.Loader`; `corrupt_tree` writes them in READ's tree; both give the same bits, for
any number of workers. `checksums` tells whether two labs have the same data.
"""

from dasp.streams.checksum import checksums
from dasp.streams.corrupt import CorruptReport, corrupt_tree
from dasp.streams.domains import Domain, DomainDamage, all_domains, domain_dataset

__all__ = [
    "CorruptReport",
    "Domain",
    "DomainDamage",
    "all_domains",
    "checksums",
    "corrupt_tree",
    "domain_dataset",
]
