"""Runs that are made by hand, in a project without limits, for tests of what is shown of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.training import TrainSpec
from sparring.operations.operation import Caller, Role
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_state
from sparring.run_folder.files import append_line, write_json
from sparring.runs import queue
from sparring.runs.lifecycle import RunState
from tests.operations.made import make_project

SHOP = '''
from sparring import Environment

class Shop(Environment):
    """Sells things."""
    settings = {"beta": 0.1}
'''
RUNNING = (RunState.STARTING, RunState.RUNNING)


def make_free_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the runs that are started in it, in name only; it has no project file."""
    make_project(folder, monkeypatch)
    (folder / "shop.py").write_text(SHOP)
    (folder / "sparring.toml").unlink()
    started: list[str] = []

    def launch(run: RunFolder, _: int) -> dict[str, Any]:
        started.append(run.id)
        return {}

    monkeypatch.setattr(queue, "launch", launch)
    return started


def owner_of(folder: Path) -> Caller:
    return Caller(Role.OWNER, folder / "runs", "ada", folder=folder)


def agent_in(folder: Path) -> Caller:
    return Caller(Role.OPERATOR, folder / "runs", "agent", folder=folder)


def make_run(caller: Caller, name: str = "shop-1", *states: RunState, **spec: Any) -> RunFolder:
    """A training run of the shop that went through these states after it was queued."""
    folder = RunFolder(caller.runs / name)
    target = f"{caller.folder / 'shop.py'}:Shop"
    made = TrainSpec(target=target, environment="shop", **spec)
    folder.create(made.model_dump(mode="json"))
    append_state(folder, RunState.QUEUED, author="ada")
    for state in states:
        append_state(folder, state, author="supervisor", epoch=1)
    return folder


def write_figures(folder: RunFolder, step: int, *, seconds: float = 2.0) -> None:
    """The metrics and the heartbeat of one step of ten."""
    row = {"loss": 0.5, "reward": 0.25, "pass_rate/right": 0.5, "seconds": seconds}
    append_line(folder.metrics, {"attempt": 1, "step": step, **row})
    beat = {"step": step, "steps": 10, "metrics": row, "messages": [], "tokens_drawn": 5}
    beat["seconds_left"] = 2.5 * (10 - step)
    write_json(folder.heartbeat, {"format": 1, **beat}, durable=False)
