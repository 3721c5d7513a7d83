"""The manual launcher starts nothing, and never takes a run for lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sparring.run_folder import RunFolder
from sparring.runs.claims import claim
from sparring.runs.launcher import SupervisorPresence
from sparring.runs.manual import Manual

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
