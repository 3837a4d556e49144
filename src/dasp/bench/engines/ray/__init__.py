"""The engine behind the extra `[ray]`: the same items as tasks of a Ray cluster.

Nothing outside this package imports Ray. `flight` submits the tasks and writes what comes back,
`cluster` connects, `shipment` is what workers are sent, `tasks` what they do, `news` what they
tell while they do it.
"""

from dasp.bench.engines.ray.flight import Ray

__all__ = ["Ray"]
