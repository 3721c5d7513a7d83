"""A project whose runs are started in name only, for tests of who may do what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.environments import EnvironmentDescription, FoundEnvironment
from sparring.operations.operation import Caller, Role
from sparring.projects import descriptions
from sparring.run_folder import RunFolder
from sparring.runs import queue, status
from sparring.runs.launchers import SupervisorPresence

SHOP = '''
from pathlib import Path
from sparring import Environment
import prices
class Shop(Environment):
    """Sells things."""
    settings = {"max_completion_length": 77, "max_steps": 5}
    class Config(Environment.Config):
        size: int = 2
        stock: Path = Path("stock.txt")
'''
PROJECT = """
[settings]
model = "tiny"
[[lock]]
field = "beta"
value = 0.5
[budget]
steps = 50
rollouts = 3000
starts_per_day = 5
[operators]
may_set = ["max_steps", "config.size"]
"""


def make_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """Its owner."""
    (folder / "shop.py").write_text(SHOP)
    (folder / "prices.py").write_text("APPLE = 1\n")
    (folder / "stock.txt").write_text("apples\n")
    (folder / "cases.jsonl").write_text('{"input": "hello"}\n')
    (folder / "sparring.toml").write_text(PROJECT)
    monkeypatch.setattr(descriptions, "_describe_in_process", _described_once)
    monkeypatch.setattr(queue, "launch", lambda *_: {})
    for module in (queue, status):
        monkeypatch.setattr(module, "find_supervisor", lambda *_: SupervisorPresence.YES)
    return Caller(Role.OWNER, folder / "runs", folder=folder)


_REAL_ASK = descriptions._describe_in_process
_DESCRIPTIONS: dict[str, EnvironmentDescription] = {}


def _described_once(found: FoundEnvironment, *besides: Any) -> EnvironmentDescription:
    """The real answer of a real process, once for the same source: it takes a second."""
    folder = Path(found.file).parent
    source = "".join(each.read_text() for each in sorted(folder.rglob("*.py")))
    if source not in _DESCRIPTIONS:
        _DESCRIPTIONS[source] = _REAL_ASK(found, *besides)
    return _DESCRIPTIONS[source]


def operator_of(owner: Caller, name: str = "coach") -> Caller:
    return Caller(Role.OPERATOR, owner.runs, name, folder=owner.folder)


def spec_of(caller: Caller, run: str) -> dict[str, Any]:
    return RunFolder(caller.runs / run).read_spec()


def edit_project(caller: Caller, old: str, new: str) -> None:
    place = caller.folder / "sparring.toml"
    text = place.read_text()
    assert old in text
    place.write_text(text.replace(old, new))
