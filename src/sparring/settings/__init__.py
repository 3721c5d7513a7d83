"""Resolves settings from layers; each value carries its source and its lock.

Pure: it works on the texts and values it is given, and reads no file, clock or environment.
"""
