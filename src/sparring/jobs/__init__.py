"""The code that a run's process executes: one folder per kind of run, and what they share.

`sparring.contracts.kinds` names the entry point of each kind.
"""
