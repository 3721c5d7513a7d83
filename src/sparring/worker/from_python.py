"""What runs started from Python have in common: their folder, and what tells an agent apart."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from pathlib import Path
from typing import Any, get_args

from agents import Agent, FunctionTool
from pydantic import BaseModel, ValidationError

from sparring.contracts.errors import InvalidInput, RunChanged
from sparring.contracts.specs import Frozen
from sparring.run_folder import RunFolder
from sparring.run_folder.ids import is_plain_name, new_run_id
from sparring.suites import Suite

_ACCEPTABLE = ("code_digest", "processes")


def open_run(
    runs: Path, run: str | None, spec: Frozen, name: str, *, accept_changes: bool = False
) -> RunFolder:
    """The folder of a new run, or of the run of that name if it was started alike."""
    if run is not None and not is_plain_name(run):
        raise InvalidInput(f"a run cannot be called {run!r}; use letters, digits, - _ and .")
    folder = RunFolder(runs / (run or new_run_id(name, time.time(), secrets.token_hex(2))))
    asked = spec.model_dump(mode="json")
    if not folder.path.is_dir():
        folder.create(asked)
        return folder
    started = type(spec).model_validate(folder.read_spec()).model_dump(mode="json")
    changed = [field for field in asked if asked[field] != started[field]]
    if accept_changes:
        changed = [field for field in changed if field not in _ACCEPTABLE]
    if changed:
        listed = "; ".join(_difference(field, started[field], asked[field]) for field in changed)
        raise RunChanged(
            f"run {folder.id} was started with other settings ({listed}), and its figures would "
            "mix the two; use another name for a new run"
        )
    return folder


def _difference(field: str, before: Any, now: Any) -> str:
    """What changed, without repeating a whole table of settings."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        return ", ".join(f"{field}.{key}: {before.get(key)} → {now.get(key)}" for key in keys)
    return f"{field}: {before} → {now}"


def agent_digest(agent: Agent[Any]) -> str:
    """What of an agent can be told apart without its source: words, tools, model."""
    told = [
        agent.name,
        agent.instructions if isinstance(agent.instructions, str) else "(function)",
        agent.model if isinstance(agent.model, str) else "",
        [
            [tool.name, tool.description, tool.params_json_schema]
            for tool in agent.tools
            if isinstance(tool, FunctionTool)
        ],
    ]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def refuse_wrong_kinds(agent: object, suite: object) -> None:
    if not isinstance(agent, Agent):
        raise InvalidInput(
            f"the agent must be an agents.Agent, not {agent!r}; of an environment, pass "
            "environment.agent(), environment.suite() and environment.measures"
        )
    if not isinstance(suite, Suite):
        raise InvalidInput(
            f"the suite must be a Suite, not {type(suite).__name__}; make one with "
            "Suite.from_records([{'input': …, 'expected': …}])"
        )


def explained(error: ValidationError, settings: type[Frozen]) -> str:
    """A validation error as `field: what is wrong`."""
    return "; ".join(
        f"{'.'.join(map(str, problem['loc']))}: "
        + (
            f"no such setting; there are {_known_beside(problem['loc'], settings)}"
            if problem["type"] == "extra_forbidden"
            else problem["msg"].removeprefix("Value error, ")
        )
        for problem in error.errors()
    )


def _known_beside(place: tuple[int | str, ...], settings: type[Frozen]) -> str:
    """The names that may stand in the same table as the one at `place`."""
    table: type[BaseModel] = settings
    for name in place[:-1]:
        field = table.model_fields.get(str(name))
        inner = [] if field is None else [field.annotation, *get_args(field.annotation)]
        models = [each for each in inner if isinstance(each, type) and issubclass(each, BaseModel)]
        table = models[0] if models else table
    return ", ".join(table.model_fields)
