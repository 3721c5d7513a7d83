"""Resolves settings from layers; each value carries its source and its lock.

The package is pure: it works on texts and values, and reads no file, clock or environment variable.
"""
