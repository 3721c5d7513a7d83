"""The example operator, with a scripted model: the server, the runs and the training are real."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import Model, ModelResponse, Usage
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from sparring.operations.activity import VerifyActivity, verify_activity
from sparring.operations.activity_log import ActivityLog
from sparring.operations.operation import Caller, Role

ROOT = Path(__file__).resolve().parents[2]
PROJECT = """
[settings]
model = "{model}"
max_steps = 2
max_completion_length = 48
validation_cases = 4

[budget]
steps = 4
starts_per_day = 4
"""
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


def example() -> Any:
    place = ROOT / "examples" / "operator" / "coach.py"
    spec = importlib.util.spec_from_file_location("coach", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Scripted(Model):
    """Does what a sensible operator would, and reads the answers to know what to do next."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []
        self._script = self._play()
        self._instructions = ""

    def _play(self) -> Any:
        yield "list_environments", {}
        name = self.last["environments"][0]["name"]
        yield "show_limits", {}
        left = self.last["starts_left"]
        yield "describe_environment", {"environment": name}
        yield "check_environment", {"environment": name, "cases": 2, "rollouts": 4}
        check = self.last["run"]
        yield from self._until_ended(check)
        yield "get_results", {"run": check}
        verdict = self.last["summary"]["verdict"]
        yield "plan_run", {"environment": name, "settings": {"max_steps": 400}}
        assert self.last["error"]["type"] == "LockedField"
        yield "plan_run", {"environment": name}
        assert self.last["last_check"]["verdict"] == verdict
        yield "revise_plan", {"plan": self.last["plan"], "field": "temperature", "value": 1.0}
        yield "start_run", {"plan": self.last["plan"]}
        run, proof = self.last["run"], self.last["proof"]
        yield from self._until_ended(run)
        yield "list_rollouts", {"run": run, "max_reward": 0.5, "count": 3}
        yield from self._until_ended(proof)
        yield "get_results", {"run": proof}
        yield f"{self.last['summary']['sentence']} ({run}, {left} starts at the beginning)", None

    def _until_ended(self, run: str) -> Any:
        since = 0
        while True:
            yield "wait_for_run", {"run": run, "since": since, "until": "end"}
            if self.last["has_ended"]:
                return
            since = self.last["cursor"]

    @property
    def last(self) -> dict[str, Any]:
        return self.answers[-1]

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
        self._instructions = str(system_instructions)
        if isinstance(input, list) and input[-1].get("type") == "function_call_output":
            self.answers.append(_read(input[-1]["output"]))
        tool, given = next(self._script)
        number = str(len(self.answers))
        if given is None:
            text = ResponseOutputText(text=tool, type="output_text", annotations=[])
            item: Any = ResponseOutputMessage(
                id=number, content=[text], role="assistant", status="completed", type="message"
            )
        else:
            item = ResponseFunctionToolCall(
                name=tool, arguments=json.dumps(given), call_id=number, type="function_call"
            )
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def _read(output: Any) -> dict[str, Any]:
    """As the SDK hands it on: a text, or parts of one."""
    if isinstance(output, list):
        output = output[0]["text"]
    answer = json.loads(output)
    if isinstance(answer, dict) and answer.get("type") == "text":
        answer = json.loads(answer["text"])
    return dict(answer)


def test_the_example_operator_trains_and_proves_within_its_limits(
    tmp_path, tiny_folder, monkeypatch
):
    shutil.copy(ROOT / "examples" / "bell" / "bell.py", tmp_path)
    (tmp_path / "sparring.toml").write_text(PROJECT.format(model=tiny_folder))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    model = Scripted()
    report = asyncio.run(example().operate(tmp_path, "Get bell better.", model=model))
    assert "on 24 cases" in report
    assert "4 starts at the beginning" in report
    owner = Caller(Role.OWNER, tmp_path / "runs", folder=tmp_path)
    verbs = [
        each["verb"]
        for each in ActivityLog(owner.runs).backwards()
        if each["outcome"] == "done" and each["who"] == "coach"
    ]
    assert verbs[::-1] == ["check.start", "plan.make", "plan.revise", "plan.start"]
    assert verify_activity(VerifyActivity(), owner).ok
