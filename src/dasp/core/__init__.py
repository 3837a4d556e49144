"""What every room shares: types, the contract with a model, registries, seeds and errors.

Nothing here knows a method, a model or a data set; everything else may import from here.
"""
