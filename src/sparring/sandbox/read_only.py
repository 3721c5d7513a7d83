"""A looser, read-only sandbox for inspecting the user's own code."""

from __future__ import annotations

import os
from collections.abc import Sequence

from sparring.sandbox.support import probe


def read_only_command(command: Sequence[str]) -> list[str]:
    """Wrap `command` so that it can read all files, but cannot change them, see other processes or
    reach a network. Returns `command` unchanged if bubblewrap does not work."""
    support = probe()
    if not support.works:
        return list(command)
    arguments = [support.bwrap, "--die-with-parent", "--new-session", "--ro-bind", "/", "/"]
    arguments += ["--unshare-pid", "--unshare-net", "--unshare-ipc"]
    arguments += ["--proc", "/proc", "--dev", "/dev"]
    arguments += ["--setenv", "TMPDIR", "/dev/shm"]  # noqa: S108 - private and writable
    if os.geteuid() == 0:
        arguments += ["--cap-drop", "ALL"]
    else:
        arguments += ["--unshare-user"]
    return [*arguments, "--", *command]
