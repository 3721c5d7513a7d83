"""`.ci/titles` refuses commits whose titles do not say `area: what` on one short line."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / ".ci" / "titles"


def git(folder: Path, *arguments: str) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True)


def check_titles(folder: Path) -> subprocess.CompletedProcess[str]:
    script = folder / ".ci" / "titles"
    return subprocess.run([str(script)], capture_output=True, text=True, check=False)


@pytest.fixture
def branch(tmp_path: Path) -> Path:
    """A branch off a main whose own title is of the old kind."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(SCRIPT, tmp_path / ".ci")
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "Something from before the rule")
    git(tmp_path, "checkout", "-b", "topic")
    return tmp_path


@pytest.mark.parametrize(
    "title", ["runs: a stop is kept", "jobs, run_folder: one lock", f"docs: {'ö' * 66}"]
)
def test_a_title_with_its_area_passes(branch: Path, title: str) -> None:
    git(branch, "commit", "--allow-empty", "-m", title)
    assert check_titles(branch).returncode == 0


@pytest.mark.parametrize("title", ["Fix a bug", "runs:", f"docs: {'o' * 67}"])
def test_a_title_without_area_or_too_long_fails_and_is_shown(branch: Path, title: str) -> None:
    git(branch, "commit", "--allow-empty", "-m", title)
    git(branch, "commit", "--allow-empty", "-m", "runs: a stop is kept")
    done = check_titles(branch)
    assert done.returncode == 1
    assert title in done.stdout
    assert "runs: a stop is kept" not in done.stdout


def test_an_archive_without_history_passes(branch: Path) -> None:
    shutil.rmtree(branch / ".git")
    done = check_titles(branch)
    assert (done.returncode, done.stdout.split(":")[0]) == (0, "commit titles are not checked")
