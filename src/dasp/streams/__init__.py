"""Domains and the streams that visit them: clips corrupted while they are loaded.

A `Domain` is (modality, corruption, severity). `domain_dataset` returns its clips as a data set
for `dasp.data.Loader`, with the same bits for any number of workers. `checksums` tells whether two
labs have the same data. `example_stream` makes a short stream of the built-in set.
"""

from dasp.streams.checksum import checksums
from dasp.streams.domains import Domain, DomainDamage, all_domains, domain_dataset
from dasp.streams.example import example_stream

__all__ = [
    "Domain",
    "DomainDamage",
    "all_domains",
    "checksums",
    "domain_dataset",
    "example_stream",
]
