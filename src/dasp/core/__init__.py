"""Types, the contract with a model, registries, seeds, files and errors shared by every package.

Nothing here knows a method, a model or a data set; everything else may import from here.
"""
