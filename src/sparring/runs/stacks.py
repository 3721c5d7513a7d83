"""Where a process hangs, from the stacks that it wrote into its log: whose code it is in."""

from __future__ import annotations

import re
from pathlib import Path

import sparring
from sparring.run_folder.files import read_tail

_FRAME = re.compile(r'  File "(.+)", line (\d+) in (.+)')
_OURS = str(Path(sparring.__file__).resolve().parent)
_TAIL = 1 << 18
_SHOWN = 4


def where_it_is(log: Path) -> str:
    """The innermost frames that are neither Python's, nor a library's, nor ours: a tool, a world,
    a measure. Where there are none, the innermost of the main thread."""
    text = read_tail(log, _TAIL)
    threads = [_frames(part) for part in re.split(r"(?:Current thread|Thread) 0x", text)[1:]]
    own = [next((frame for frame in frames if _is_a_users(frame)), "") for frames in threads]
    found = [frame for frame in dict.fromkeys(own) if frame]
    if not found and threads:
        found = [frame for frame in threads[-1] if _OURS in frame][:1]
    if not found:
        return "it did not say where it is, as one that is stopped by a signal cannot"
    return f"it is in {'; '.join(found[:_SHOWN])} (all stacks are in {log})"


def _frames(part: str) -> list[str]:
    return [f"{file}:{line} ({name})" for file, line, name in _FRAME.findall(part)]


def _is_a_users(frame: str) -> bool:
    return not any(word in frame for word in (_OURS, "/site-packages/", "/lib/python", "<frozen"))
