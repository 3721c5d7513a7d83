"""Builds the bubblewrap command line that contains a program.

Started by root, the program runs without capabilities, as a user without an account. Started by an
ordinary user, it runs in a user namespace and cannot create further ones. In both cases it has no
network, no variables of the host's environment, and no host files except a read-only runtime.
"""

from __future__ import annotations

import functools
import os
import pwd
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024
INSIDE = "/workspace"
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_INSIDE_USER = 1000
_FIRST_SPARE_USER, _FIRST_RESERVED_USER = 20_000, 60_000
# Switches the user, which drops every capability, and keeps the root folder. `setpriv` would be
# clearer, but adds half a millisecond to every call.
_HIDDEN = Path("/usr/src")  # where container images often keep the project
_SWITCH_USER = ("/usr/sbin/chroot", "--skip-chdir", "--groups=")


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of one call; `disk_bytes` and `files` apply to the whole workspace. `loopback` allows
    IP sockets on a private interface; no limit covers their buffers."""

    wall_seconds: float = 10.0
    cpu_seconds: int = 10
    memory_bytes: int = 512 * MIB
    processes: int = 32
    file_bytes: int = 32 * MIB
    disk_bytes: int = 64 * MIB
    files: int = 4096
    scratch_bytes: int = 16 * MIB
    output_bytes: int = 256 * 1024
    open_files: int = 256
    loopback: bool = False

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if name != "loopback" and getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")


@dataclass(frozen=True, slots=True)
class Visible:
    """A file or folder of the host that a program may read at `inside`."""

    host: Path
    inside: str


def confined(
    command: Sequence[str],
    *,
    workspace: Path | None,
    enter: Sequence[str] = (),
    empty: Path | None = None,
    limits: SandboxLimits | None = None,
    visible: Sequence[Visible] = (),
    user: int | None = None,
    filter_fd: int | None = None,
    info_fd: int | None = None,
    block_fd: int | None = None,
) -> list[str]:
    """Return the command line that runs `command` in a sandbox, as `user` if started by root.

    `enter` is a command prefix that enters the namespace of the workspace. bubblewrap writes the
    pid of its first process to `info_fd`; that process waits until `block_fd` is readable.
    `empty` is an empty folder that is mounted over the packages of Sparring's interpreter.
    `visible` lists further files of the host that the program may read.
    """
    bounds = limits or SandboxLimits()
    arguments = [*enter, "bwrap", "--die-with-parent", "--new-session", "--clearenv"]
    arguments += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    arguments += ["--unshare-cgroup-try", "--hostname", "sandbox"]
    switches_user = can_switch_user()
    if not switches_user:
        inside = str(_INSIDE_USER)
        arguments += ["--unshare-user", "--disable-userns", "--uid", inside, "--gid", inside]
    arguments += _runtime()
    if empty is not None:
        for folder in _package_folders():
            arguments += ["--ro-bind", str(empty), folder]
    scratch = ["--perms", "1777", "--size", str(bounds.scratch_bytes), "--tmpfs"]
    arguments += ["--proc", "/proc", "--dev", "/dev", *scratch, "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
    arguments += [*scratch, "/tmp"]  # noqa: S108
    if workspace is not None:
        arguments += ["--bind", str(workspace), INSIDE, "--chdir", INSIDE]
    arguments += _shown(visible)
    for name, value in (("PATH", search_path()), ("HOME", INSIDE), ("LANG", "C.UTF-8")):
        arguments += ["--setenv", name, value]
    if _hides_sources():
        arguments += ["--remount-ro", str(_HIDDEN)]
    arguments += ["--remount-ro", "/"]
    for option, descriptor in (
        ("--seccomp", filter_fd),
        ("--info-fd", info_fd),
        ("--block-fd", block_fd),
    ):
        if descriptor is not None:
            arguments += [option, str(descriptor)]
    arguments.append("--")
    if switches_user:
        user_id = user if user is not None else spare_user_id(0)
        arguments += [*_SWITCH_USER, f"--userspec=+{user_id}:+{user_id}", "/"]
    return [*arguments, *command]


def _shown(visible: Sequence[Visible]) -> list[str]:
    """Return read-only binds, and the options that create their parents with mode 0755."""
    arguments: list[str] = []
    made: set[Path] = set()
    for each in visible:
        for folder in sorted(Path(each.inside).parents)[1:]:
            if folder not in made:
                made.add(folder)
                arguments += ["--perms", "0755", "--dir", str(folder)]
        arguments += ["--ro-bind", str(each.host), each.inside]
    return arguments


def spare_user_id(number: int) -> int:
    """Return a user id without an account for sandbox `number` of this process."""
    limit = _user_id_limit()
    if limit >= 2_000_000_000:
        return 1_500_000_000 + (os.getpid() % 65536) * 4096 + number % 4096
    spare = _spare_user_ids(limit)
    return spare[(os.getpid() * 4099 + number) % len(spare)]


@functools.cache
def _spare_user_ids(limit: int) -> list[int]:
    """Return the ids without an account below the range that distributions reserve."""
    accounts = {account.pw_uid for account in pwd.getpwall()}
    last = min(limit, _FIRST_RESERVED_USER)
    return [number for number in range(_FIRST_SPARE_USER, last) if number not in accounts]


def can_switch_user() -> bool:
    """Whether this process is root and has enough user ids to give each sandbox its own."""
    return os.geteuid() == 0 and _user_id_limit() > 2 * _FIRST_SPARE_USER


@functools.cache
def _user_id_limit() -> int:
    """Return the upper bound of user ids in this user namespace; containers may have few ids."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
        return max(int(line.split()[0]) + int(line.split()[2]) for line in lines)
    except (OSError, ValueError, IndexError):
        return 0


def python() -> str:
    """Return the interpreter for code in the sandbox: Sparring's own, else `python3`."""
    own = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    return str(own) if own.exists() else "python3"


@functools.cache
def _runtime() -> tuple[str, ...]:
    """Return the read-only binds that programs need to run; few, because each adds time to every
    call. The interpreter's parent folders get mode 0755, because bubblewrap's default mode would
    exclude other users."""
    arguments = ["--ro-bind", "/usr", "/usr"]
    if _hides_sources():
        arguments += ["--perms", "0755", "--size", str(1 << 16), "--tmpfs", str(_HIDDEN)]
    for name in _LINKS:
        path = Path("/", name)
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), f"/{name}"]
        elif path.is_dir():
            arguments += ["--ro-bind", f"/{name}", f"/{name}"]
    arguments += ["--perms", "0755", "--dir", "/etc"]
    arguments += ["--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]
    prefix = Path(sys.base_prefix)
    if not prefix.is_relative_to("/usr") or prefix.is_relative_to(_HIDDEN):
        for folder in sorted(prefix.parents)[1:]:
            arguments += ["--perms", "0755", "--dir", str(folder)]
        arguments += ["--ro-bind", str(prefix), str(prefix)]
    return tuple(arguments)


@functools.cache
def _hides_sources() -> bool:
    """Whether `_HIDDEN` has anything besides the sources of system packages. Hiding it adds two
    mounts to every call."""
    names = [each.name for each in _HIDDEN.iterdir()] if _HIDDEN.is_dir() else []
    return not all(name.startswith(("linux-", "python3.")) for name in names)


@functools.cache
def _package_folders() -> tuple[str, ...]:
    """Return the package folders of Sparring's interpreter, which may contain a user's measures.
    Packages of other interpreters stay visible, because each folder adds a bind to every call."""
    prefix = Path(sys.base_prefix)
    roots = {prefix / "lib", *([Path("/usr/local/lib")] if prefix == Path("/usr") else [])}
    own = f"python3.{sys.version_info.minor}"
    folders = [
        root / version / name
        for root in roots
        for version in (own, "python3")
        for name in ("site-packages", "dist-packages")
    ]
    return tuple(str(folder) for folder in folders if folder.is_dir() and not folder.is_symlink())


def search_path() -> str:
    """Return the PATH of programs: the folder of Sparring's own Python, then the system's."""
    return os.pathsep.join(
        dict.fromkeys((str(Path(sys.base_prefix) / "bin"), "/usr/bin", "/bin")).keys()
    )
