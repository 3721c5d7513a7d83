"""`python -m sparring.sandbox.keeper`: outlives a worker, to clear up behind it.

Reads the worker's folder from standard input and waits for its end: when the worker is gone,
however it went, every process of its sandboxes is ended and every workspace taken away.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from sparring.sandbox.places import remove
from sparring.sandbox.processes import end_all_in


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # what is meant for the worker is not for its keeper
    folder = Path(sys.stdin.readline().rstrip("\n"))
    if not folder.is_absolute():
        return  # the worker ended before it could say where
    while os.read(0, 4096):
        pass
    end_all_in(folder)
    remove(folder)


if __name__ == "__main__":
    main()
