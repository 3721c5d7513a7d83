"""Runs to look at: the committed samples, and a training made by hand with groups and tokens."""

from __future__ import annotations

import json
import shutil
from array import array
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from sparring.contracts.cases import Case, Split
from sparring.contracts.rollouts import (
    Ending,
    Message,
    RequestedCall,
    Rollout,
    RolloutKey,
    Span,
    TokenKind,
    TokenRow,
    TokenUse,
    ToolCall,
)
from sparring.contracts.specs import EvalSpec
from sparring.contracts.training import TrainSpec
from sparring.contracts.verdicts import Judgement, failed, passed
from sparring.operations.operation import Caller, Role
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, append_state
from sparring.run_folder.files import append_line, write_json
from sparring.run_folder.rollout_log import RolloutWriter
from sparring.runs.lifecycle import RunState
from sparring.surfaces.web.app import Server, build_app
from sparring.surfaces.web.sessions import BrowserSessions, FindCaller

ROOT = Path(__file__).resolve().parents[3]
HOST = "127.0.0.1:8000"
TRAINING, SECRET = "shop-1", "secret-1"
HIDDEN = "the held-out answer is plum"


def played(case: str, step: int, index: int, *, is_right: bool, **fields: Any) -> Rollout:
    """A rollout of one call, right or wrong."""
    item = "lamp" if is_right else "lump"
    arguments = json.dumps({"item": item, "place": "shop"})
    answer = "There are 12 lamps." if is_right else "There are no lumps."
    result = "12" if is_right else "no lump in the shop"
    verdict = passed("the last number is 12") if is_right else failed("no number in the answer")
    row = TokenRow(
        "clerk",
        array("i", [1, 2, 3, 4, 5, 6]),
        array("f", [-0.1, -2.5, -0.01]),
        (Span(TokenKind.PROMPT, 2), Span(TokenKind.SAMPLED, 3), Span(TokenKind.OBSERVED, 1)),
    )
    made: dict[str, Any] = {
        "answer": answer,
        "messages": (
            Message("user", "How many lamps are in the shop?", "clerk"),
            Message("assistant", "", "clerk", calls=(RequestedCall("1", "count", arguments),)),
            Message("tool", result, "clerk", call_id="1"),
            Message("assistant", answer, "clerk", thinking="I look it up."),
        ),
        "tool_calls": (ToolCall("1", "count", arguments, result, agent="clerk"),),
        "rows": (row,),
        "judgements": (Judgement("numeric", verdict, 1.0),),
        "reward": float(is_right),
        "advantage": 0.87 if is_right else -0.87,
        "turns": 2,
        "tokens": TokenUse(100, 3),
        "ending": Ending.ANSWERED,
        **fields,
    }
    given = Case(case, "How many lamps are in the shop?", 12, Split.TRAINING)
    return Rollout(key=RolloutKey(0, step, case, index), case=given, **made)


def make_training(runs: Path, name: str = TRAINING, steps: int = 4, group: int = 4) -> RunFolder:
    """A completed training: one group a step, one rollout of it right."""
    folder = RunFolder(runs / name)
    spec = TrainSpec(target="shop.py:Shop", environment="shop").model_dump(mode="json")
    folder.create({**spec, "sources": {"learning_rate": "sparring.toml:3"}})
    append_state(folder, RunState.QUEUED, author="owner")
    for state in (RunState.STARTING, RunState.RUNNING):
        append_state(folder, state, author="supervisor", epoch=1)
    with RolloutWriter(folder.rollouts()) as writer:
        for step in range(steps):
            for index in range(group):
                writer.append(played("lamps", step, index, is_right=index <= step // 2), 1.5)
    for step in range(1, steps + 1):
        row = {"attempt": 1, "step": step, "reward": step / 10, "pass_rate/numeric": step / 10}
        append_line(folder.metrics, {**row, "rollouts": group, "entropy": 1 / step, "seconds": 2.0})
    append_event(folder, "checkpoint", author="worker", attempt=1, step=2, path="step-2")
    guard = "step 3: the mean entropy was 0.3 (guard entropy); try a higher temperature"
    append_event(folder, "warning", author="worker", attempt=1, message=guard)
    write_json(
        folder.checkpoints / "step-2" / "manifest.json",
        {"format": 1, "step": 2, "score": 0.5, "files": {"model": {"size": 1000}}},
    )
    log = folder.log(1)
    log.parent.mkdir(parents=True)
    log.write_text("loading\n\x1b[31mred\x1b[0m\nstep 4/4\n")
    write_json(folder.heartbeat, {"format": 1, "step": steps, "steps": steps})
    append_state(folder, RunState.COMPLETED, author="supervisor", epoch=1, exit_code=0)
    return folder


def make_secret(runs: Path, name: str = SECRET) -> RunFolder:
    """An evaluation on held-out cases, which only the owner may read."""
    folder = RunFolder(runs / name)
    folder.create(EvalSpec(target="shop.py:Shop", split=Split.HELD_OUT).model_dump(mode="json"))
    append_state(folder, RunState.QUEUED, author="owner")
    append_event(folder, "failed", author="worker", message=HIDDEN, kind="Broken")
    for state in (RunState.STARTING, RunState.RUNNING):
        append_state(folder, state, author="supervisor", epoch=1)
    with RolloutWriter(folder.rollouts()) as writer:
        for index in range(2):
            writer.append(played("plum", 0, index, is_right=False, answer=HIDDEN), 1.0)
    append_line(folder.metrics, {"attempt": 1, "step": 1, HIDDEN: 1.0})
    write_json(
        folder.summary,
        {"format": 1, "kind": "eval", "reward": 0.5, "still_fails": [HIDDEN], "note": HIDDEN},
    )
    log = folder.log(1)
    log.parent.mkdir(parents=True)
    log.write_text(f"{HIDDEN}\n")
    append_state(
        folder, RunState.FAILED, author="supervisor", epoch=1, message=HIDDEN, exit_code=100
    )
    return folder


def copy_samples(runs: Path) -> None:
    """The committed runs of an earlier version, among them a proof and a check."""
    shutil.copytree(ROOT / "tests" / "samples" / "runs", runs, dirs_exist_ok=True)


def owner_in(folder: Path) -> Caller:
    return Caller(Role.OWNER, folder / "runs", folder=folder)


def server_of(caller: Caller, find_caller: FindCaller | None = None) -> tuple[Server, str]:
    """A server, and a cookie with which `caller` is signed in."""
    sessions = BrowserSessions(find_caller)
    cookie = sessions.sign_in(sessions.new_link(caller))
    return Server(sessions, (HOST,)), cookie


def client_of(caller: Caller) -> TestClient:
    """A browser in which `caller` is signed in."""
    server, cookie = server_of(caller)
    client = TestClient(build_app(server), base_url=f"http://{HOST}", follow_redirects=False)
    client.cookies.set(server.cookie, cookie)
    return client
