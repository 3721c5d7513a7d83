"""The spec names the launcher; what was started is kept, with the number of tries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import LauncherFailed, SettingError
from sparring.run_folder import RunFolder
from sparring.runs.launcher import SupervisorPresence, handle_of
from sparring.runs.launchers import find_supervisor, launch, launcher_named, launcher_of
from sparring.runs.local import Local
from sparring.runs.slurm import Slurm

PLUGIN = """
from sparring.runs.launcher import SupervisorPresence

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
