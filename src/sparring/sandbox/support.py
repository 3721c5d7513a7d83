"""Runs a trial program to find out whether this machine can sandbox programs, and how.

`read_only_command` wraps the inspection of the user's own code in a looser, read-only sandbox.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.errors import SandboxUnavailable
from sparring.sandbox import cgroups
from sparring.sandbox.command import can_switch_user, confined

_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Support:
    """How this machine sandboxes programs: `user` describes how users are separated, `memory` how
    memory is limited. If the sandbox does not work, `why_not` is the reason and `fix` the remedy;
    otherwise both are empty."""

    bwrap: str
    why_not: str
    fix: str
    user: str
    memory: str

    @property
    def works(self) -> bool:
        """Whether programs can be sandboxed on this machine."""
        return not self.why_not

    def require(self) -> None:
        """Raise SandboxUnavailable, with the fix, if the sandbox does not work."""
        if not self.works:
            raise SandboxUnavailable(
                f"model-written code cannot be sandboxed on this machine: {self.why_not}. "
                f"{self.fix} To run the code without a sandbox, on a disposable machine, set "
                "unsandboxed=true; every report will show it."
            )


@functools.cache
def probe() -> Support:
    """Run a program in a sandbox and return whether it worked; runs once per process."""
    user = "a separate user id for each sandbox" if can_switch_user() else "a user namespace"
    by_checks = "rlimits and periodic checks, between which a program can exceed the limit"
    memory = cgroups.describe_limits() or by_checks
    if not sys.platform.startswith("linux"):
        return _unsupported(
            "bubblewrap runs only on Linux", "On Windows use WSL2; on macOS a Linux VM."
        )
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return _unsupported("bubblewrap is not installed", f"Install it: {_install_command()}.")
    try:
        finished = subprocess.run(
            confined(["/bin/sh", "-c", "exit 0"], workspace=None),
            capture_output=True,
            text=True,
            env={},
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _unsupported(
            f"bubblewrap does not run: {error}", "Run `bwrap --version` to see why.", bwrap
        )
    if finished.returncode:
        reason = (finished.stderr.strip().splitlines() or [f"exit code {finished.returncode}"])[-1]
        return _unsupported(reason, _fix_for(reason), bwrap)
    return Support(bwrap, "", "", user, memory)


def _unsupported(reason: str, fix: str, bwrap: str = "") -> Support:
    return Support(bwrap, reason, fix, "", "")


def _install_command() -> str:
    for tool, command in (
        ("apt-get", "apt-get install bubblewrap"),
        ("dnf", "dnf install bubblewrap"),
        ("apk", "apk add bubblewrap util-linux"),
        ("pacman", "pacman -S bubblewrap"),
        ("zypper", "zypper install bubblewrap"),
    ):
        if shutil.which(tool):
            return command
    return "the package is called bubblewrap"


def _fix_for(reason: str) -> str:
    """Return the remedy for the most likely reason why the system refuses namespaces."""
    if _is_set("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"):
        return (
            "AppArmor restricts user namespaces on this system (Ubuntu 24.04 and later): "
            "sudo apt-get install apparmor-profiles && sudo ln -s "
            "/usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/ && "
            "sudo apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict; or, for all programs, "
            "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0."
        )
    if _is_set("/proc/sys/kernel/unprivileged_userns_clone", "0"):
        return "Allow user namespaces: sudo sysctl kernel.unprivileged_userns_clone=1."
    if _is_set("/proc/sys/user/max_user_namespaces", "0"):
        return "Allow user namespaces: sudo sysctl user.max_user_namespaces=15000."
    if Path("/.dockerenv").exists() or "permitted" in reason:
        return (
            "In a container, allow the creation of namespaces: docker run --cap-add SYS_ADMIN "
            "--security-opt seccomp=unconfined --security-opt apparmor=unconfined …"
        )
    return "Run `bwrap --unshare-all --ro-bind / / true` to see what is refused."


def _is_set(path: str, value: str) -> bool:
    try:
        return Path(path).read_text().strip() == value
    except OSError:
        return False


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
