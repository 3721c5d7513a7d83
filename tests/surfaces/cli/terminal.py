"""Commands as they are typed, in this process; and a project with one run of each kind."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparring.runs import queue, status
from sparring.runs.launchers import SupervisorPresence
from sparring.surfaces.cli.main import run

SAMPLES = Path(__file__).parents[2] / "samples"
EVAL = "bell-20261116-184053-77fe"
CHECK = "check-bell-20261116-184209-e42b"
TRAIN = "bell-20261116-184334-e4fc"
PROOF = "proof-bell-20261116-184334-e4fc"
AUDIT = "audit-bell-20261116-184545-5817"
SHIPMENT = "ship-bell-20261116-091000-f21e"
STOPPED = "bell-20261116-184635-3ab8"


@dataclass(frozen=True)
class Typed:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Terminal:
    """A wide terminal in one folder."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "200")

    def type(self, *words: object) -> Typed:
        self._monkeypatch.setattr(sys, "argv", ["sparring", *map(str, words)])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            run()
        printed = self._capsys.readouterr()
        return Typed(int(left.value.code or 0), printed.out, printed.err)


def summary_of(run: str) -> dict[str, Any]:
    """The summary of a sample."""
    found: dict[str, Any] = json.loads((SAMPLES / "runs" / run / "report/summary.json").read_text())
    return found


def copy_samples(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The samples in a project at this place, whose runs are started in name only."""
    shutil.copytree(SAMPLES, project, ignore=shutil.ignore_patterns("*.safetensors", "*.pt"))
    for file in project.glob("runs/*-*/**/*"):
        if file.suffix in (".json", ".jsonl") and b"/srv/porter" in (text := file.read_bytes()):
            file.write_bytes(text.replace(b"/srv/porter", str(project).encode()))
    monkeypatch.setattr(queue, "launch", lambda *_: {})
    for module in (queue, status):
        monkeypatch.setattr(module, "find_supervisor", lambda *_: SupervisorPresence.YES)
    return project
