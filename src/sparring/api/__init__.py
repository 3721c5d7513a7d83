"""The Python entry points: one function per verb, `Trainer`, and their results."""
