"""The parts of training that do not depend on an engine.

This package chooses the cases of each step, builds rows and masks, counts the results of each step,
defines when sampler and trainer agree, and guards the run. It imports the player and the measures,
but no engine and no torch.
"""
