"""Engines: where the runs of a plan are done.

`local` uses processes of this machine and needs nothing further; `ray` uses a Ray cluster, or
starts one here. Both do the same items of the same `Work` and write the same files.
"""
