"""The command line that contains a program.

As root, bubblewrap makes the namespaces and the program runs as a user that exists nowhere
else, without capabilities. As an ordinary user it runs in a user namespace that can make no
further ones. Either way: no network, no host files but a read-only runtime, no environment.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from sparring.sandbox.limits import SandboxLimits

INSIDE = "/workspace"
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_INSIDE_USER = 1000
_FIRST_SPARE = 20_000
# Changes the user, and with it gives up every capability; the root stays. `setpriv` would say
# it better, and takes half a millisecond more of every call.
_BECOMING = ("/usr/sbin/chroot", "--skip-chdir", "--groups=")


def confined(
    command: Sequence[str],
    *,
    workspace: Path | None,
    empty: Path | None = None,
    limits: SandboxLimits | None = None,
    user: int | None = None,
    filter_fd: int | None = None,
    info_fd: int | None = None,
    block_fd: int | None = None,
) -> list[str]:
    """`command` in a sandbox. `user` is whom it runs as, where root may choose.

    `info_fd` is told its first process, which goes on when there is something on `block_fd`.
    `empty` is an empty folder, put over packages that are nobody's business.
    """
    bounds = limits or SandboxLimits()
    words = ["bwrap", "--die-with-parent", "--new-session", "--clearenv"]
    words += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    words += ["--unshare-cgroup-try", "--hostname", "sandbox"]
    drops = can_drop()
    if not drops:
        inside = str(_INSIDE_USER)
        words += ["--unshare-user", "--disable-userns", "--uid", inside, "--gid", inside]
    words += _runtime()
    if empty is not None:
        for place in _packages():
            words += ["--ro-bind", str(empty), place]
    scratch = ["--perms", "1777", "--size", str(bounds.scratch_bytes), "--tmpfs"]
    words += ["--proc", "/proc", "--dev", "/dev", *scratch, "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
    words += [*scratch, "/tmp"]  # noqa: S108
    if workspace is not None:
        words += ["--bind", str(workspace), INSIDE, "--chdir", INSIDE]
    for name, value in (("PATH", _path()), ("HOME", INSIDE), ("LANG", "C.UTF-8")):
        words += ["--setenv", name, value]
    words += ["--remount-ro", "/"]
    for option, descriptor in (
        ("--seccomp", filter_fd),
        ("--info-fd", info_fd),
        ("--block-fd", block_fd),
    ):
        if descriptor is not None:
            words += [option, str(descriptor)]
    words.append("--")
    if drops:
        outside = user if user is not None else a_user(0)
        words += [*_BECOMING, f"--userspec=+{outside}:+{outside}", "/"]
    return [*words, *command]


def a_user(number: int) -> int:
    """A user id that nobody has, for the sandbox of that number in this process."""
    most = _ids()
    if most >= 2_000_000_000:
        return 1_500_000_000 + (os.getpid() % 65536) * 4096 + number % 4096
    return _FIRST_SPARE + (os.getpid() * 4099 + number) % (most - _FIRST_SPARE - 16)


def can_drop() -> bool:
    """Whether we are root and there are users enough to become another for each sandbox."""
    return os.geteuid() == 0 and _ids() > 2 * _FIRST_SPARE


@functools.cache
def _ids() -> int:
    """Up to which number users exist here; in a container that may be few."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
        return max(int(line.split()[0]) + int(line.split()[2]) for line in lines)
    except (OSError, ValueError, IndexError):
        return 0


def python() -> str:
    """The interpreter for code in the sandbox: the one that runs us, without our packages."""
    own = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    return str(own) if own.exists() else "python3"


@functools.cache
def _runtime() -> tuple[str, ...]:
    """Read-only binds of what programs need to run, as few as can be: each costs time at every
    call. Folders on the way to the interpreter are made open to all, for bubblewrap would make
    them for its own user only."""
    words = ["--ro-bind", "/usr", "/usr"]
    for name in _LINKS:
        place = Path("/", name)
        if place.is_symlink():
            words += ["--symlink", str(place.readlink()), f"/{name}"]
        elif place.is_dir():
            words += ["--ro-bind", f"/{name}", f"/{name}"]
    words += ["--perms", "0755", "--dir", "/etc"]
    words += ["--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]
    prefix = Path(sys.base_prefix)
    if not prefix.is_relative_to("/usr"):
        for folder in sorted(prefix.parents)[1:]:
            words += ["--perms", "0755", "--dir", str(folder)]
        words += ["--ro-bind", str(prefix), str(prefix)]
    return tuple(words)


@functools.cache
def _packages() -> tuple[str, ...]:
    """Packages installed for our interpreter: Sparring may be among them, and a user's measures.
    Each costs a bind at every call, so those of other interpreters stay in sight."""
    prefix = Path(sys.base_prefix)
    roots = {prefix / "lib", *([Path("/usr/local/lib")] if prefix == Path("/usr") else [])}
    own = f"python3.{sys.version_info.minor}"
    places = [
        root / version / name
        for root in roots
        for version in (own, "python3")
        for name in ("site-packages", "dist-packages")
    ]
    return tuple(str(place) for place in places if place.is_dir() and not place.is_symlink())


def _path() -> str:
    return os.pathsep.join(
        dict.fromkeys((str(Path(sys.base_prefix) / "bin"), "/usr/bin", "/bin")).keys()
    )
