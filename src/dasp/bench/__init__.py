"""Runs that can be made again: plans, the feature store, jobs, results, and the checks.

A *plan* (`plan`) names methods, models, protocols and data. `runner` turns it into *jobs*, of which
an engine (`engines`) computes the features once (`features`, `store`) and runs each in a process
with one thread (`cells`); `results` defines what a run is known by and how it is kept. `cost`
measures time and memory, `tune` chooses options on validation data, `train` trains source models,
and `checks` holds the contract that every method keeps.
"""
