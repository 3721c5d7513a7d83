"""The worker's keeper is a real process: it holds workspaces of a fixed size and outlives requests
that fail."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparring.contracts.errors import InfrastructureError
from sparring.sandbox.command import MIB, SandboxLimits
from sparring.sandbox.keeper_client import Keeper

LIMITS = SandboxLimits(disk_bytes=2 * MIB, files=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worker")


@pytest.fixture(scope="module")
def keeper(folder: Path) -> Iterator[Keeper]:
    made = Keeper(folder)
    yield made
    made.end()


@pytest.fixture
def bounding(keeper: Keeper) -> Keeper:
    if not keeper.has_bounded_workspaces:
        pytest.skip("this machine has no mount namespaces")
    return keeper


def test_a_held_workspace_is_a_file_system_of_its_own_size(bounding: Keeper, folder: Path) -> None:
    (folder / "0").mkdir()
    held = bounding.hold(0, LIMITS, None)
    inside = held.folder / "0"
    usage = os.statvfs(inside)
    assert usage.f_blocks * usage.f_frsize == 2 * MIB
    assert usage.f_ffree == 5
    (inside / "x").write_text("only in there")
    assert not (folder / "0" / "x").exists()
    assert held.namespace.exists()
    assert inside.stat().st_mode & 0o777 == 0o700


def test_a_released_workspace_is_gone(bounding: Keeper, folder: Path) -> None:
    (folder / "1").mkdir()
    held = bounding.hold(1, LIMITS, None)
    bounding.release(1)
    assert not held.folder.exists()
    bounding.release(1)
    assert not bounding.is_gone


def test_a_failed_request_is_refused_with_the_reason_and_the_next_is_served(
    bounding: Keeper, folder: Path
) -> None:
    with pytest.raises(InfrastructureError, match="refused 'hold': FileNotFoundError"):
        bounding.hold(2, LIMITS, None)
    (folder / "2").mkdir()
    assert (bounding.hold(2, LIMITS, None).folder / "2").is_dir()


def test_a_namespace_is_entered_as_the_user_of_the_keeper(keeper: Keeper) -> None:
    command = keeper.enter_command(Path("/proc/1/fd/5"))
    assert command[:2] == ["nsenter", "--mount=/proc/1/fd/5"]
    assert f"--user=/proc/{keeper._process.pid}/ns/user" in command
    assert command[-1] == "--"


def test_a_keeper_that_ends_removes_its_folder_and_serves_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "worker"
    folder.mkdir()
    (folder / "left").touch()
    keeper = Keeper(folder)
    assert not keeper.is_gone
    keeper.leave()  # as in a forked child
    keeper.end()
    assert keeper.is_gone
    assert not folder.exists()
    with pytest.raises(InfrastructureError, match="keeper process of the sandboxes does not"):
        keeper.hold(0, LIMITS, None)
    keeper.release(0)
