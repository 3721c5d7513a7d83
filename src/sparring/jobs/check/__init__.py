"""Runs of kind check: test whether an environment can be learned, before training on it."""
