"""Runs: starting their processes and telling their state. Imports no ML library."""
