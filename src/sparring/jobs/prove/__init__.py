"""Runs of kind prove: compare the base and the trained model on the same held-out cases."""
