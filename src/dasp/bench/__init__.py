"""Runs that can be made again: plans, the feature store, jobs, results, and the checks.

A *plan* (`plan`) names methods, models, protocols and data. `runner` turns it into *jobs*, which an
engine (`engines`) runs in processes with one thread each (`cells`), on features that are computed
once (`features`, `store`); `results` defines what a run is known by and how it is kept, `code` what
it was made by. `cost` measures time and memory, `train` trains source models, and `checks` holds
the contract that every method keeps.
"""

from dasp.bench import recordings  # noqa: F401 - registers data sets
