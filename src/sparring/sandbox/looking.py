"""A looser sandbox, for code of the user's own that is only asked a question."""

from __future__ import annotations

import os
from collections.abc import Sequence

from sparring.sandbox.support import probe


def looking_only(command: Sequence[str]) -> list[str]:
    """`command` where it can read what is here, and neither write, nor see other processes, nor
    reach a network; as it is, where bubblewrap does not work."""
    support = probe()
    if not support.works:
        return list(command)
    words = [support.bwrap, "--die-with-parent", "--new-session", "--ro-bind", "/", "/"]
    words += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--proc", "/proc", "--dev", "/dev"]
    words += ["--setenv", "TMPDIR", "/dev/shm"]  # noqa: S108 - the only place to write to
    if os.geteuid() == 0:
        words += ["--cap-drop", "ALL"]
    else:
        words += ["--unshare-user"]
    return [*words, "--", *command]
