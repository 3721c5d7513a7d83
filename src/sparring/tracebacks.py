"""Names the line of user code that raised an error. A leaf."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

_LIBRARIES = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")]
_PACKAGES = {"site-packages", "dist-packages"}
_GENERATED = ("<frozen", "<string>", "<attrs")  # by the interpreter, dataclasses, attrs
_OURS = Path(__file__).resolve().parent


def error_with_line(error: BaseException) -> str:
    """Return an error's type and message, and the line that raised it, if known."""
    line = line_that_raised(error)
    return f"{type(error).__name__}: {error}{f' ({line})' if line else ''}"


def line_that_raised(error: BaseException) -> str:
    """Return `FILE:LINE` of the innermost frame of user code; without one, of the innermost frame
    of a library; empty if only Sparring's own frames are left."""
    frames = [
        each for each in traceback.extract_tb(error.__traceback__) if not _is_ours(each.filename)
    ]
    of_the_user = [each for each in frames if not _is_library(each.filename)]
    for frame in (of_the_user or frames)[-1:]:
        return f"{Path(frame.filename).name}:{frame.lineno}"
    return ""


def _is_ours(filename: str) -> bool:
    return Path(filename).resolve().is_relative_to(_OURS)


def _is_library(filename: str) -> bool:
    path = Path(filename).resolve()
    is_inside = any(path.is_relative_to(folder) for folder in _LIBRARIES)
    return is_inside or filename.startswith(_GENERATED) or not _PACKAGES.isdisjoint(path.parts)
