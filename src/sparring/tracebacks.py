"""Names the line of user code that raised an error. A leaf."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

_LIBRARIES = tuple(
    str(Path(sysconfig.get_path(name)).resolve())
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_OURS = str(Path(__file__).resolve().parent)


def line_that_raised(error: BaseException) -> str:
    """Return `FILE:LINE` of the innermost frame outside Python's libraries, installed packages and
    Sparring; of the innermost frame if there is no other; empty without a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not _is_library(each.filename)]
    for frame in (own or frames)[-1:]:
        return f"{Path(frame.filename).name}:{frame.lineno}"
    return ""


def _is_library(filename: str) -> bool:
    path = str(Path(filename).resolve()) if not filename.startswith("<") else filename
    return path.startswith(("<frozen", _OURS, *_LIBRARIES))
