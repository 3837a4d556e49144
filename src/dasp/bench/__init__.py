"""Runs, counts and checks: the contract check of methods and the first run."""
