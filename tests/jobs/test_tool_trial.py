"""Tools are called in the trial of an environment, and only those at fault fail it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Literal

import pytest
from agents import function_tool

from sparring import call, worked_example
from sparring.contracts.cases import Case
from sparring.contracts.specs import PlaySettings
from sparring.jobs import tool_trial
from sparring.jobs.env_test import try_environment
from sparring.jobs.tool_trial import Check, made_up_arguments, worked_arguments

OFFICE = """
import time

from agents import Agent, function_tool

from sparring import Environment, Suite, failed, measure, passed


@function_tool
def look(name: str) -> str:
    "Looks up a name."
    BODY


@measure
def short(rollout):
    return failed("always")


class Desk(Environment):
    measures = (short,)

    def agent(self):
        return Agent(name="clerk", tools=[look])

    def suite(self):
        call = {"type": "function_call", "call_id": "1", "name": "look"}
        call["arguments"] = '{"name": "lamp"}'
        result = {"type": "function_call_output", "call_id": "1", "output": "yes"}
        requests = {"role": "user", "content": "Is there a lamp?"}
        done = {"role": "assistant", "content": "Yes."}

        def case(n):
            return [*EXAMPLES, {"role": "user", "content": f"question {n}"}]

        return Suite.from_records([{"input": case(n)} for n in range(60)])
"""
WORKED = "[requests, call, result, done]"


@function_tool
def book(
    day: Literal["monday", "friday"], seats: int, price: float, name: str, window: bool
) -> str:
    """Book seats."""
    return f"{day} {seats} {price} {name} {window}"


def test_made_up_arguments_have_the_types_of_the_schema() -> None:
    assert json.loads(made_up_arguments(book)) == {
        "day": "monday", "seats": 1, "price": 1.0, "name": "example", "window": True,
    }  # fmt: skip
    assert json.loads(made_up_arguments(book, 1)) == {
        "day": "friday", "seats": 2, "price": 2.5, "name": "other", "window": False,
    }  # fmt: skip


def test_worked_arguments_are_those_of_the_calls_in_the_case() -> None:
    booked = {"type": "function_call", "call_id": "1", "name": "book", "arguments": '{"seats": 2}'}
    case = Case("c", [{"role": "user", "content": "two seats"}, booked])
    assert worked_arguments((), case) == {"book": '{"seats": 2}'}
    example = worked_example("?", call("pay", euros=3).returning("paid"), answer="Paid.")
    assert worked_arguments([example], Case("c", "two seats")) == {"pay": '{"euros": 3}'}
    assert worked_arguments((), Case("c", "two seats")) == {}


def called(folder: Path, model: Path, body: str, *, examples: str = "[]") -> list[Check]:
    """The results of the trial from the first call of a tool on."""
    file = folder / "desk.py"
    file.write_text(OFFICE.replace("BODY", body).replace("EXAMPLES", examples))
    play = PlaySettings(max_completion_length=64).model_dump(mode="json")
    request = {
        "target": f"{file}:Desk", "config": {}, "model": str(model), "cases": 1, "play": play,
    }  # fmt: skip
    checks = try_environment(request)
    first = next(n for n, check in enumerate(checks) if check.what.startswith("calls "))
    return checks[first:]


def test_a_tool_that_always_raises_fails_the_trial_and_ends_it(
    tmp_path: Path, tiny_folder: Path
) -> None:
    body = "raise RuntimeError('database is down')"
    (only,) = called(tmp_path, tiny_folder, body)
    assert (only.ok, only.what) == (False, 'calls look({"name": "example"})')
    assert only.detail == (
        "look failed: RuntimeError: database is down; so it does with other arguments: mend the "
        "tool"
    )


@pytest.mark.parametrize(
    "body",
    ["return {'lamp': 'yes'}[name]", "raise ValueError('no name')", "raise RuntimeError(name)"],
)
def test_a_tool_that_may_be_right_to_refuse_made_up_arguments_is_doubtful(
    tmp_path: Path, tiny_folder: Path, body: str
) -> None:
    first, *more = called(tmp_path, tiny_folder, body)
    assert (first.ok, first.is_doubtful) == (True, True)
    assert more


def test_the_call_of_a_worked_example_must_work(tmp_path: Path, tiny_folder: Path) -> None:
    (only,) = called(tmp_path, tiny_folder, "raise KeyError(name)", examples=WORKED)
    assert (only.ok, only.detail) == (False, "look failed: KeyError: 'lamp'")
    body = "return {'lamp': 'yes'}[name]"
    first, *more = called(tmp_path, tiny_folder, body, examples=WORKED)
    assert (first.ok, first.is_doubtful, bool(more)) == (True, False, True)


def test_a_tool_that_hangs_fails_the_trial_at_once(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PlaySettings().tool_timeout > tool_trial._DEADLINE
    monkeypatch.setattr(tool_trial, "_DEADLINE", 0.5)
    started = time.monotonic()
    (only,) = called(tmp_path, tiny_folder, "time.sleep(60)")
    assert time.monotonic() - started < 30
    assert (only.ok, only.detail) == (
        False,
        "look gave no result within 0.5 seconds. Every rollout would wait: make it faster, or "
        "raise tool_timeout",
    )


def test_calls_that_find_nothing_are_named(tmp_path: Path, tiny_folder: Path) -> None:
    checks = {each.what: each for each in called(tmp_path, tiny_folder, "return f'no {name}'")}
    doubt = checks["a tool finds something"]
    assert (doubt.ok, doubt.is_doubtful) == (True, True)
    assert doubt.detail.startswith('no call did: look({"name": "example"}) → \'no example\';')
    found = called(tmp_path, tiny_folder, "return f'one {name}'")
    assert "a tool finds something" not in {each.what for each in found}
