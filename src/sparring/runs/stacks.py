"""Locates a hang from the stacks that a process has dumped into its log."""

from __future__ import annotations

import re
from pathlib import Path

import sparring
from sparring.run_folder.files import read_tail

_FRAME = re.compile(r'  File "(.+)", line (\d+) in (.+)')
_OURS = str(Path(sparring.__file__).resolve().parent)
_TAIL = 1 << 18
_SHOWN = 4


def describe_hang(log: Path) -> str:
    """Return text with the innermost frame of user code (a tool, a world, a measure) of up to four
    threads or, without user code, Sparring's innermost frame in the main thread."""
    text = read_tail(log, _TAIL)
    threads = [_frames(part) for part in re.split(r"(?:Current thread|Thread) 0x", text)[1:]]
    innermost = [next(filter(_is_user_code, frames), "") for frames in threads]
    shown = [frame for frame in dict.fromkeys(innermost) if frame]
    if not shown and threads:
        shown = [frame for frame in threads[-1] if _OURS in frame][:1]
    if not shown:
        return "it wrote no stacks; it may be suspended by a signal"
    return f"it is in {'; '.join(shown[:_SHOWN])} (all stacks are in {log})"


def _frames(part: str) -> list[str]:
    return [f"{file}:{line} ({name})" for file, line, name in _FRAME.findall(part)]


def _is_user_code(frame: str) -> bool:
    return not any(part in frame for part in (_OURS, "/site-packages/", "/lib/python", "<frozen"))
