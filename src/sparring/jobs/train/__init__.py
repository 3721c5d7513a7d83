"""Runs of kind train: train, checkpoint, validate."""
