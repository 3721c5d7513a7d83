"""The spec names the launcher; what was started is kept, with the number of tries."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import LauncherFailed, SettingError
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from sparring.runs.claims import claim, is_held
from sparring.runs.launchers import (
    SILENT_SECONDS,
    Local,
    Manual,
    SupervisorPresence,
    find_supervisor,
    handle_of,
    launch,
    launcher_named,
    launcher_of,
)
from sparring.runs.processes import ProcessIdentity, identity_of, since_boot
from sparring.runs.slurm import Slurm
from tests.supervised import wait_for


@pytest.mark.parametrize("handle", [{"job": "77"}, {"since_boot": 1.5, "epoch": 2, "tries": 3}])
def test_a_handle_is_read_as_it_was_written(tmp_path: Path, handle: dict[str, Any]) -> None:
    folder = RunFolder(tmp_path)
    write_json(folder.launch, handle)
    assert handle_of(folder) == handle


def test_without_a_start_the_handle_is_empty(tmp_path: Path) -> None:
    assert handle_of(RunFolder(tmp_path)) == {}


@pytest.mark.parametrize("name", ["since_boot", "epoch", "tries"])
@pytest.mark.parametrize("value", ["1", None, [1]])
def test_a_handle_with_a_number_that_is_none_is_empty(
    tmp_path: Path, name: str, value: object
) -> None:
    folder = RunFolder(tmp_path)
    write_json(folder.launch, {"epoch": 1, "job": "77", name: value})
    assert handle_of(folder) == {}


@pytest.mark.parametrize("text", ["", "{", "[]", "7"])
def test_a_file_that_is_no_table_is_an_empty_handle(tmp_path: Path, text: str) -> None:
    folder = RunFolder(tmp_path)
    folder.launch.write_text(text)
    assert handle_of(folder) == {}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.create({"format": 1})
    return made


def heard(folder: RunFolder, seconds_ago: float, **fields: Any) -> None:
    beat = {"since_boot": since_boot() - seconds_ago, **identity_of(os.getpid()).to_dict()}
    write_json(folder.supervisor, beat | fields)


def handle(identity: ProcessIdentity, **fields: Any) -> dict[str, Any]:
    return {"since_boot": since_boot(), "epoch": 1, **identity.to_dict(), **fields}


def test_start_runs_the_supervisor_of_that_epoch_in_a_session_of_its_own(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$@" "$(ps -o sid= -p $$)"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    started = Local().start(folder, 7)
    log = folder.path / "logs" / "supervisor.log"
    wait_for(lambda: log.read_text().endswith("\n"), 10)
    *command, session = log.read_text().split()
    assert command == ["-m", "sparring.runs.supervisor", str(folder.path.resolve()), "7"]
    assert int(session) == started["pid"]


def test_the_claimant_is_there_as_long_as_it_is_heard(folder: RunFolder) -> None:
    assert claim(folder, 1)
    heard(folder, 1.0)
    assert Local().look(folder, {}, 0) is SupervisorPresence.YES
    heard(folder, SILENT_SECONDS + 1)
    assert Local().look(folder, {}, 0) is SupervisorPresence.NO


@pytest.mark.parametrize("fields", [{"pid": 1}, {"boot": "another"}, {"since_boot": "x"}])
def test_a_heartbeat_of_another_process_does_not_speak_for_it(
    folder: RunFolder, fields: dict[str, Any]
) -> None:
    assert claim(folder, 1)
    heard(folder, 1.0, **fields)
    assert Local().look(folder, {}, 0) is SupervisorPresence.NO


def test_a_supervisor_that_was_just_started_needs_no_heartbeat(folder: RunFolder) -> None:
    own = identity_of(os.getpid())
    assert Local().look(folder, handle(own), 0) is SupervisorPresence.YES
    late = handle(own, since_boot=since_boot() - SILENT_SECONDS - 1)
    assert Local().look(folder, late, 0) is SupervisorPresence.NO


def test_only_later_epochs_count(folder: RunFolder) -> None:
    own = identity_of(os.getpid())
    assert claim(folder, 1)
    heard(folder, 1.0)
    assert Local().look(folder, handle(own), 1) is SupervisorPresence.NO
    assert Local().look(folder, handle(own, epoch=2), 1) is SupervisorPresence.YES


def test_a_dead_process_whose_number_was_given_again_is_not_alive(folder: RunFolder) -> None:
    former = replace(identity_of(os.getpid()), start="1")
    assert Local().look(folder, handle(former), 0) is SupervisorPresence.NO


def test_a_claim_from_another_host_is_not_judged_from_here(folder: RunFolder) -> None:
    distant = replace(identity_of(os.getpid()), host="another")
    write_json(folder.epochs / "000001.json", distant.to_dict())
    assert Local().look(folder, {}, 0) is SupervisorPresence.ELSEWHERE


def test_nothing_is_ever_pending(folder: RunFolder) -> None:
    assert Local().stop(folder, handle(identity_of(os.getpid()))) is False


def test_a_run_is_held_while_its_lock_is(folder: RunFolder) -> None:
    assert not is_held(folder)
    with folder.lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_held(folder)
        fcntl.flock(file, fcntl.LOCK_UN)
        assert not is_held(folder)


CLAIM = "import sys; from pathlib import Path; from sparring.run_folder import RunFolder; "
CLAIM += "from sparring.runs.claims import claim; claim(RunFolder(Path(sys.argv[1])), 1)"


def test_a_supervisor_here_is_found_and_a_dead_one_is_elsewhere(tmp_path: Path) -> None:
    folder, launcher = RunFolder(tmp_path / "run"), Manual()
    folder.create({"format": 1, "kind": "train"})
    handle = launcher.start(folder, 1)
    assert launcher.look(folder, handle, 0) is SupervisorPresence.ELSEWHERE
    assert launcher.stop(folder, handle)
    subprocess.run([sys.executable, "-c", CLAIM, str(folder.path)], check=True)
    assert launcher.look(folder, handle, 0) is SupervisorPresence.ELSEWHERE
    assert not launcher.stop(folder, handle)
    assert claim(folder, 2)
    assert launcher.look(folder, handle, 0) is SupervisorPresence.YES
    assert launcher.look(folder, handle, 2) is SupervisorPresence.ELSEWHERE


PLUGIN = """
from sparring.runs.launchers import SupervisorPresence

class Moon:
    def start(self, folder, epoch):
        return {"rocket": f"{folder.id}/{epoch}"}
    def look(self, folder, handle, after):
        is_later = handle.get("epoch", 0) > after
        return SupervisorPresence.ELSEWHERE if is_later else SupervisorPresence.NO
    def stop(self, folder, handle):
        return True
"""


@pytest.fixture
def _moon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with a launcher."""
    packages = tmp_path / "packages"
    about = packages / "moon_launcher-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: moon-launcher\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[sparring.launchers]\nmoon = moon_launcher:Moon\n")
    (packages / "moon_launcher.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(packages)


def run_on(runs: Path, launcher: str | None) -> RunFolder:
    folder = RunFolder(runs / "run")
    supervision: dict[str, Any] = {} if launcher is None else {"launcher": launcher}
    folder.create({"format": 1, "supervision": supervision})
    return folder


@pytest.mark.parametrize(("name", "kind"), [(None, Local), ("local", Local), ("slurm", Slurm)])
def test_the_spec_names_the_launcher_and_the_default_is_this_machine(
    tmp_path: Path, name: str | None, kind: type
) -> None:
    assert isinstance(launcher_of(run_on(tmp_path, name)), kind)


@pytest.mark.usefixtures("_moon")
def test_an_unknown_launcher_is_refused_with_those_that_are_installed() -> None:
    with pytest.raises(SettingError, match="'mars'; use one of local, slurm, manual, moon"):
        launcher_named("mars")


@pytest.mark.usefixtures("_moon")
def test_an_installed_package_starts_and_finds_supervisors(tmp_path: Path) -> None:
    folder = run_on(tmp_path, "moon")
    assert find_supervisor(folder) is SupervisorPresence.NO
    launch(folder, 3)
    assert handle_of(folder)["rocket"] == "run/3"
    assert find_supervisor(folder, after=2) is SupervisorPresence.ELSEWHERE
    assert find_supervisor(folder, after=3) is SupervisorPresence.NO


@pytest.mark.usefixtures("_moon")
def test_tries_are_counted_for_each_epoch(tmp_path: Path) -> None:
    folder = run_on(tmp_path, "moon")
    tries = [launch(folder, epoch)["tries"] for epoch in (1, 1, 1, 2, 2, 3)]
    assert tries == [1, 2, 3, 1, 2, 1]
    assert handle_of(folder)["tries"] == 1


def test_a_start_that_is_under_way_is_seen_by_others_and_one_that_failed_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_on(tmp_path, None)
    seen: list[dict[str, Any]] = []

    def start(_: Local, run: RunFolder, epoch: int) -> dict[str, Any]:
        seen.append(handle_of(run))
        if epoch == 2:
            raise LauncherFailed("the rocket exploded")
        return {}

    monkeypatch.setattr(Local, "start", start)
    assert "is_starting" not in launch(folder, 1)
    with pytest.raises(LauncherFailed):
        launch(folder, 2)
    assert [(each["epoch"], each["is_starting"]) for each in seen] == [(1, True), (2, True)]
    assert (handle_of(folder)["epoch"], "is_starting" in handle_of(folder)) == (2, False)
