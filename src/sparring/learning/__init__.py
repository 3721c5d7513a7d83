"""What is ours in learning, whatever engine updates the weights.

Which cases make a batch, which tokens are learned from, what each step showed, whether
sampler and trainer agree, which checkpoint is best. Knows the player and the measures; no
engine, and no torch.
"""
