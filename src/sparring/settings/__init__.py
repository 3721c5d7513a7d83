"""Settings: layers merged purely, each value with its source and its lock.

It is given texts and values, and reads no file, clock or environment of its own.
"""
