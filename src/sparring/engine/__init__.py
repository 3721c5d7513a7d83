"""The engine that updates the weights: TRL with Accelerate and PEFT, and its checkpoints.

It gets rows, masks and rewards from `learning`, and never changes the state of a run.
"""
