"""A run on disk: every file name, atomic writes, append-only files. It decides nothing."""

from sparring.run_folder.layout import RunFolder

__all__ = ["RunFolder"]
