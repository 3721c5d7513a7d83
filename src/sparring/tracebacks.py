"""Names lines of user code: the one that raised an error, the one of a function. A leaf."""

from __future__ import annotations

import inspect
import os
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
        (_whole_path(each.filename), each.lineno)
        for each in traceback.extract_tb(error.__traceback__)
        if not each.filename.startswith(_GENERATED)
    ]
    frames = [each for each in frames if not each[0].is_relative_to(_OURS)]
    of_the_user = [each for each in frames if not _is_library(each[0])]
    for path, line in (of_the_user or frames)[-1:]:
        return f"{path.name}:{line}"
    return ""


def place_of(function: Callable[..., Any]) -> str:
    """Return `FILE:LINE` of a function's definition; empty if it was not written in Python."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "" if code is None else f"{Path(code.co_filename).name}:{code.co_firstlineno}"


def _whole_path(filename: str) -> Path:
    """Follow links, behind which a library may look like the user's. Names such as <stdin> stay."""
    path = Path(filename)
    return Path(os.path.realpath(path)) if path.is_absolute() else path


def _is_library(path: Path) -> bool:
    is_inside = any(path.is_relative_to(folder) for folder in _LIBRARIES)
    return is_inside or not _PACKAGES.isdisjoint(path.parts)
