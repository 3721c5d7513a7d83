"""Starts and supervises the processes of runs, and derives their states. Imports no ML library."""
