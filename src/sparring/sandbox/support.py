"""What this machine has to contain a program with, tried out rather than guessed."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.errors import SandboxUnavailable
from sparring.sandbox import cgroups
from sparring.sandbox.command import can_drop, confined

_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Support:
    """`why_not` is empty where the sandbox works; `fix` is what to do where it does not."""

    bwrap: str
    why_not: str
    fix: str
    user: str
    memory: str

    @property
    def works(self) -> bool:
        return not self.why_not

    def require(self) -> None:
        if not self.works:
            raise SandboxUnavailable(
                f"code that a model wrote cannot be contained here: {self.why_not}. {self.fix} "
                "To run it without a sandbox all the same, on a machine that may be lost, set "
                "unsandboxed=true; every report will show it."
            )


@functools.cache
def probe() -> Support:
    """Run a program in a sandbox and see whether it works."""
    user = "a user of its own for each sandbox" if can_drop() else "a user namespace"
    memory = cgroups.kind() or "rlimits and a watchdog, which a program can outrun"
    if not sys.platform.startswith("linux"):
        return _not("bubblewrap is for Linux", "On Windows use WSL2; on macOS a Linux VM.")
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return _not("bubblewrap is not installed", f"Install it: {_install_command()}.")
    try:
        done = subprocess.run(
            confined(["/bin/sh", "-c", "exit 0"], workspace=None),
            capture_output=True,
            text=True,
            env={},
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _not(f"bubblewrap does not run: {error}", "Run `bwrap --version` to see why.", bwrap)
    if done.returncode:
        told = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return _not(told, _fix_for(told), bwrap)
    return Support(bwrap, "", "", user, memory)


def _not(why: str, fix: str, bwrap: str = "") -> Support:
    return Support(bwrap, why, fix, "", "")


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


def _fix_for(told: str) -> str:
    """The usual reasons why namespaces are refused, each with its way out."""
    if _is_set("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"):
        return (
            "This system (Ubuntu 24.04 and later) restricts user namespaces by AppArmor: "
            "sudo apt-get install apparmor-profiles && sudo ln -s "
            "/usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/ && "
            "sudo apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict; or, for all programs, "
            "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0."
        )
    if _is_set("/proc/sys/kernel/unprivileged_userns_clone", "0"):
        return "Allow user namespaces: sudo sysctl kernel.unprivileged_userns_clone=1."
    if _is_set("/proc/sys/user/max_user_namespaces", "0"):
        return "Allow user namespaces: sudo sysctl user.max_user_namespaces=15000."
    if Path("/.dockerenv").exists() or "permitted" in told:
        return (
            "In a container, let it make namespaces: docker run --cap-add SYS_ADMIN "
            "--security-opt seccomp=unconfined --security-opt apparmor=unconfined …"
        )
    return "Run `bwrap --unshare-all --ro-bind / / true` to see what is refused."


def _is_set(path: str, value: str) -> bool:
    try:
        return Path(path).read_text().strip() == value
    except OSError:
        return False
