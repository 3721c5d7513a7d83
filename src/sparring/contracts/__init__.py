"""Frozen data that packages exchange, the protocols between them, and the error tree.

These modules do no I/O and read neither the clock nor environment variables, so every package may
import them.
"""
