"""The parts of training that do not depend on an engine.

Chooses the cases of each step, builds the rows and masks that are learned from, counts the
results of each step, compares sampler and trainer, and guards the run. Imports the player and
the measures, but no engine and no torch.
"""
