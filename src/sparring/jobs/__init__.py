"""The code that a run's processes execute: one folder per kind of run, and shared modules.

`sparring.contracts.kinds` names the entry point of each kind.
"""
