"""The engine that updates the weights: TRL, on Accelerate and PEFT. Its checkpoints.

Gets rows, masks and rewards from `learning`. May not change a run's state.
"""
