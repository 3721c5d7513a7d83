"""A run on disk: file names, atomic writes, append-only files. Holds no decisions."""

from sparring.run_folder.layout import RunFolder

__all__ = ["RunFolder"]
