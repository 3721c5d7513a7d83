"""Frozen data that crosses rooms, the protocols between them, and the error tree.

Nothing here does I/O, reads the clock or looks at the environment, so every room may
import it, and importing it costs next to nothing.
"""
