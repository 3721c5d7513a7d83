"""Code that is only looked at reads everything and changes nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sparring.sandbox import probe, read_only
from sparring.sandbox.read_only import read_only_command
from sparring.sandbox.support import Support

works = pytest.mark.skipif(not probe().works, reason=probe().why_not)


@works
def test_looking_only_can_read_and_neither_write_nor_see_others(tmp_path: Path) -> None:
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
    monkeypatch.setattr(read_only, "probe", lambda: missing)
    assert read_only_command(("ls", "-l")) == ["ls", "-l"]


@pytest.mark.parametrize(("user", "option"), [(0, "--cap-drop"), (1000, "--unshare-user")])
def test_nobody_keeps_their_capabilities(
    monkeypatch: pytest.MonkeyPatch, user: int, option: str
) -> None:
    monkeypatch.setattr(read_only, "probe", lambda: Support("/usr/bin/bwrap", "", "", "", ""))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    command = read_only_command(["ls"])
    assert option in command
    assert command[0] == "/usr/bin/bwrap"
    assert command[-2:] == ["--", "ls"]
