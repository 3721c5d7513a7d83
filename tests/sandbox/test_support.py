"""Whether this machine can contain a program is tried out; where it cannot, the fix is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import SandboxUnavailable
from sparring.sandbox import probe, support
from sparring.sandbox.support import Support, read_only_command

works = pytest.mark.skipif(not probe().works, reason=probe().why_not)


def test_without_a_sandbox_it_is_refused_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support.shutil, "which", lambda _: None)
    found = probe.__wrapped__()
    assert not found.works
    with pytest.raises(SandboxUnavailable, match=r"not installed.*bubblewrap.*unsandboxed=true"):
        found.require()


def test_a_system_that_forbids_namespaces_is_reported_with_the_fix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refusing = tmp_path / "bwrap"
    refusing.write_text(
        "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n"
    )
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(support, "confined", lambda *_, **__: ["bwrap"])
    monkeypatch.setattr(support, "_is_set", lambda path, _: "apparmor" in path)
    monkeypatch.setattr(support.subprocess, "run", _with_path(support.subprocess.run))
    found = probe.__wrapped__()
    assert "Permission denied" in found.why_not
    assert "apparmor_restrict_unprivileged_userns=0" in found.fix


def _with_path(run: Any) -> Any:
    def with_path(command: list[str], **options: Any) -> Any:
        return run(command, **{**options, "env": dict(os.environ)})

    return with_path


def tried(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> Support:
    """What is found out where bubblewrap does what this command does."""
    monkeypatch.setattr(support.shutil, "which", lambda tool: f"/usr/bin/{tool}")
    monkeypatch.setattr(support, "confined", lambda *_, **__: command)
    return probe.__wrapped__()


def test_a_trial_that_ends_well_needs_no_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tried(monkeypatch, ["/bin/sh", "-c", "exit 0"])
    found.require()
    assert found.works
    assert (found.bwrap, found.why_not, found.fix) == ("/usr/bin/bwrap", "", "")
    assert found.user
    assert found.memory


def test_a_trial_that_fails_without_output_is_reported_by_its_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert tried(monkeypatch, ["/bin/sh", "-c", "exit 7"]).why_not == "exit code 7"


def test_the_last_line_of_a_failure_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tried(monkeypatch, ["/bin/sh", "-c", "echo first >&2; echo last >&2; exit 1"])
    assert found.why_not == "last"


@pytest.mark.parametrize("command", [["/nowhere/bwrap"], ["/bin/sleep", "60"]])
def test_a_bubblewrap_that_does_not_run_is_reported_with_the_fix(
    monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setattr(support, "_SECONDS", 0.1)
    found = tried(monkeypatch, command)
    assert found.why_not.startswith("bubblewrap does not run")
    assert "bwrap --version" in found.fix


def test_other_systems_than_linux_are_refused_with_where_bubblewrap_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(sys, "platform", "darwin")
        found = probe.__wrapped__()
    assert "bubblewrap runs only on Linux" in found.why_not
    assert "WSL2" in found.fix


@pytest.mark.parametrize(
    ("setting", "fix"),
    [
        ("apparmor_restrict_unprivileged_userns", "apparmor_parser -r"),
        ("unprivileged_userns_clone", "sysctl kernel.unprivileged_userns_clone=1"),
        ("max_user_namespaces", "sysctl user.max_user_namespaces=15000"),
        ("nothing", "docker run --cap-add SYS_ADMIN"),
    ],
)
def test_each_usual_refusal_has_its_fix(
    monkeypatch: pytest.MonkeyPatch, setting: str, fix: str
) -> None:
    monkeypatch.setattr(support, "_is_set", lambda path, _: path.endswith(setting))
    found = tried(monkeypatch, ["/bin/sh", "-c", "echo Operation not permitted >&2; exit 1"])
    assert fix in found.fix


@pytest.mark.parametrize(("tool", "command"), [("dnf", "dnf install"), ("apk", "apk add")])
def test_the_system_names_how_it_installs_bubblewrap(
    monkeypatch: pytest.MonkeyPatch, tool: str, command: str
) -> None:
    monkeypatch.setattr(support.shutil, "which", lambda name: name if name == tool else None)
    assert command in probe.__wrapped__().fix


def test_the_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    first = probe()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it is tried once only"))
    assert probe() is first


@works
def test_a_read_only_command_can_read_and_neither_write_nor_see_others(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("seen")
    program = f"cat {tmp_path}/x; touch {tmp_path}/y; ls /proc | grep -c '^[0-9]'"
    done = subprocess.run(
        read_only_command(["/bin/sh", "-c", program]), capture_output=True, text=True
    )
    assert done.stdout.startswith("seen")
    assert int(done.stdout.split()[-1].removeprefix("seen")) < 10
    assert not (tmp_path / "y").exists()


@works
def test_temporary_files_are_possible_and_a_network_is_not() -> None:
    program = 'touch "$TMPDIR/x" && ls "$TMPDIR"; cat /proc/net/dev | grep -c eth'
    done = subprocess.run(
        read_only_command(["/bin/sh", "-c", program]), capture_output=True, text=True
    )
    assert done.stdout.split() == ["x", "0"]


def test_without_bubblewrap_the_command_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Support("", "bubblewrap is not installed", "Install it.", "", "")
    monkeypatch.setattr(support, "probe", lambda: missing)
    assert read_only_command(("ls", "-l")) == ["ls", "-l"]


@pytest.mark.parametrize(("user", "option"), [(0, "--cap-drop"), (1000, "--unshare-user")])
def test_a_read_only_command_drops_its_capabilities(
    monkeypatch: pytest.MonkeyPatch, user: int, option: str
) -> None:
    monkeypatch.setattr(support, "probe", lambda: Support("/usr/bin/bwrap", "", "", "", ""))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    command = read_only_command(["ls"])
    assert option in command
    assert command[0] == "/usr/bin/bwrap"
    assert command[-2:] == ["--", "ls"]
