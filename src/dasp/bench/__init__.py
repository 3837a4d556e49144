"""Runs that can be made again: plans, the feature store, cells, result files, and the checks.

A *plan* (`plan`) names methods, models, protocols and data. `runner` turns it into *cells*, makes
what they need once (`features`, `store`), runs each in a process of its own thread (`cell`) and
writes one JSON file a cell (`results`). `tuning` chooses options on validation data, `train` makes
source models, `checks` holds the contract that every method keeps.
"""
