"""A run on disk: file names, atomic writes, append-only files. It makes no decisions about runs."""

from sparring.run_folder.layout import RunFolder

__all__ = ["RunFolder"]
