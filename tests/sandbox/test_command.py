"""The command line of a sandbox leaves a program nothing but a runtime and its workspace."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparring.sandbox import command, probe
from sparring.sandbox.command import SandboxLimits, confined, python, spare_user_id

NUMBERS = [field.name for field in fields(SandboxLimits) if field.name != "loopback"]
works = pytest.mark.skipif(not probe().works, reason=probe().why_not)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_that_allows_nothing_is_refused_by_name(name: str, value: int) -> None:
    given: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"{name} must be above 0"):
        SandboxLimits(**given)


def test_loopback_sockets_are_off_by_default() -> None:
    assert SandboxLimits().loopback is False
    assert SandboxLimits(loopback=True).loopback is True


def test_the_default_file_limit_is_within_the_default_disk_limit() -> None:
    limits = SandboxLimits()
    assert limits.file_bytes <= limits.disk_bytes
    assert limits.scratch_bytes <= limits.memory_bytes


@pytest.fixture(params=[0, 1000], ids=["root", "ordinary"])
def user(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Who starts the sandbox."""
    number: int = request.param
    monkeypatch.setattr(os, "geteuid", lambda: number)
    monkeypatch.setattr(command, "_user_id_limit", lambda: 1 << 32)
    return number


def confine(*program: str, **options: Any) -> list[str]:
    return confined(program, **{"workspace": Path("/host/files"), **options})


def follows(arguments: list[str], *wanted: str) -> bool:
    """Whether these arguments occur one after the other."""
    size = len(wanted)
    return any(tuple(arguments[n : n + size]) == wanted for n in range(len(arguments)))


def test_the_program_comes_last_whoever_starts_it(user: int) -> None:
    arguments = confine("ls", "--size", "--", "x")
    own = arguments[arguments.index("--") + 1 :]
    assert own[-4:] == ["ls", "--size", "--", "x"]
    assert ("chroot" in own[0]) == (user == 0)


def test_a_confined_command_has_no_network_environment_or_other_user(user: int) -> None:
    arguments = confine("ls", user=77_777)
    for option in ("--unshare-net", "--unshare-pid", "--clearenv", "--die-with-parent"):
        assert option in arguments
    if user == 0:
        assert "--userspec=+77777:+77777" in arguments
        assert "--groups=" in arguments
    else:
        assert {"--unshare-user", "--disable-userns"} <= set(arguments)


def test_the_root_folder_is_read_only_after_everything_is_mounted() -> None:
    arguments = confine("ls")
    assert follows(arguments, "--bind", "/host/files", "/workspace", "--chdir", "/workspace")
    mounts = [n for n, each in enumerate(arguments) if each.startswith(("--bind", "--tmpfs"))]
    assert follows(arguments, "--remount-ro", "/")
    assert max(mounts) < len(arguments) - 1 - arguments[::-1].index("--remount-ro")


def test_only_the_workspace_is_bound_to_be_written() -> None:
    assert confine("ls").count("--bind") == 1
    assert "--bind" not in confine("ls", workspace=None)


def test_scratch_folders_have_the_size_of_the_limits() -> None:
    arguments = confine("ls", limits=SandboxLimits(scratch_bytes=4321))
    for folder in ("/tmp", "/dev/shm"):
        assert follows(arguments, "--size", "4321", "--tmpfs", folder)


def test_descriptors_are_named_only_where_they_are_given() -> None:
    given_all = confine("ls", filter_fd=5, info_fd=6, block_fd=7)
    for option, number in (("--seccomp", "5"), ("--info-fd", "6"), ("--block-fd", "7")):
        assert follows(given_all, option, number)
        assert option not in confine("ls")


def test_a_namespace_is_entered_before_anything_else() -> None:
    assert confine("ls", enter=["nsenter", "--"])[:3] == ["nsenter", "--", "bwrap"]


@pytest.mark.parametrize("pid", [40_000, 30_010, 31_337])
@pytest.mark.parametrize("limit", [65_536, 1 << 32])
def test_each_sandbox_has_a_user_of_its_own_that_exists_and_has_no_account(
    monkeypatch: pytest.MonkeyPatch, limit: int, pid: int
) -> None:
    accounts = {account.pw_uid for account in pwd.getpwall()} | {20_007, 20_008}
    listed = [SimpleNamespace(pw_uid=number) for number in accounts]
    monkeypatch.setattr(command, "_user_id_limit", lambda: limit)
    monkeypatch.setattr(pwd, "getpwall", lambda: listed)
    monkeypatch.setattr(os, "getpid", lambda: pid)
    command._spare_user_ids.cache_clear()
    users = {spare_user_id(number) for number in range(4096)}
    assert len(users) == 4096
    assert min(users) >= 20_000
    assert max(users) < limit
    assert not users & accounts


def test_root_of_a_small_user_namespace_does_not_switch_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(command, "_user_id_limit", lambda: 1)
    assert not command.can_switch_user()
    assert "--unshare-user" in confine("ls")


@works
def test_a_program_inside_finds_its_interpreter_and_no_package_of_ours(tmp_path: Path) -> None:
    program = "import os; print(sorted(os.environ)); import pytest"
    line = confined([python(), "-c", program], workspace=None, empty=tmp_path)
    tmp_path.chmod(0o755)
    done = subprocess.run(line, capture_output=True, text=True, env={"SECRET": "x", **os.environ})
    assert "ModuleNotFoundError" in done.stderr
    assert "SECRET" not in done.stdout
    assert "'HOME', 'LANG'" in done.stdout


def forget() -> None:
    command._runtime.cache_clear()
    command._hides_sources.cache_clear()


def test_sources_of_packages_are_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "linux-headers-6.1").mkdir()
    monkeypatch.setattr(command, "_HIDDEN", tmp_path)
    forget()
    assert str(tmp_path) not in confine("ls")
    (tmp_path / "app").mkdir()
    forget()
    assert str(tmp_path) in confine("ls")
    forget()


@works
def test_a_project_in_usr_src_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("/usr/share/doc")  # has files on every machine
    monkeypatch.setattr(command, "_HIDDEN", folder)
    forget()
    line = ["sh", "-c", f"ls {folder}; test -d /usr/share && echo done; touch {folder}/x"]
    done = subprocess.run(confined(line, workspace=None), capture_output=True, text=True)
    forget()
    assert any(folder.iterdir())
    assert done.stdout == "done\n", "the folder has no files, and its neighbours are there"
    assert "touch" in done.stderr, "nothing can be written there"


@works
def test_an_interpreter_in_usr_src_is_still_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_HIDDEN", Path(sys.base_prefix).parent)
    forget()
    line = confined([python(), "-c", "print(1)"], workspace=None)
    done = subprocess.run(line, capture_output=True, text=True)
    forget()
    assert done.stdout == "1\n", done.stderr
