"""Runs of kind audit: test measures for faults, without a model."""
