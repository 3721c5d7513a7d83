"""Calls the tools of an environment once or twice each, in scripted rollouts, to test them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents import FunctionTool

from sparring.contracts.cases import Case
from sparring.contracts.policies import SampleRequest
from sparring.contracts.rollouts import (
    CallFailure,
    Ending,
    Message,
    RequestedCall,
    Rollout,
    RolloutKey,
    ToolCall,
)
from sparring.contracts.specs import Limits, PlaySettings
from sparring.environments.examples import WorkedExample
from sparring.player import Play
from sparring.player.trial_round import play_unjudged
from sparring.policies.scripted_policy import Script

SHOWN_CHARACTERS = 60
_SQLITE_THREAD_ERROR = "SQLite objects created in a thread"
_DONE = Message("assistant", "Done.")
_AMPLE_TOKENS = 1 << 15
# A tool that needs longer delays every step. A longer tool_timeout says that this is meant.
_DEADLINE = 15.0
_USUAL_TIMEOUT = PlaySettings().tool_timeout
# Errors that say that the arguments are at fault, which may be true of made-up ones.
_ABOUT_ARGUMENTS = re.compile(
    r" failed: \w*(Key|Index|Lookup|Value|Type|Assertion|Attribute|Arithmetic|ZeroDivision"
    r"|NotFound|Validation|ModelBehavior)\w*:"
)
_MISS = re.compile(
    r"\W*(no|not|nothing|none|unknown|there (is|are) no)\b|.{,60}not found\W*$", re.I
)
_MADE_UP: Sequence[Mapping[str, Any]] = (
    {"string": "example", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}},
    {"string": "other", "integer": 2, "number": 2.5, "boolean": False, "array": [], "object": {}},
)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one test. `is_doubtful` marks a result to look at even if `ok` is true."""

    what: str
    ok: bool
    detail: str = ""
    is_doubtful: bool = False


def thread_advice(message: str) -> str:
    """Return what to do about SQLite's error on threads, if `message` has it."""
    if _SQLITE_THREAD_ERROR not in message:
        return ""
    return "; tools and measures run on threads: use sqlite3.connect(…, check_same_thread=False)"


def worked_arguments(examples: Sequence[WorkedExample], case: Case) -> dict[str, str]:
    """Return the arguments of the last call of each tool in the worked examples and in a case's
    earlier messages, by tool."""
    worked = {call.tool: call.arguments for example in examples for call in example.calls}
    items = [] if isinstance(case.input, str) else case.input
    calls = [item for item in items if item.get("type") == "function_call"]
    return worked | {str(call.get("name")): str(call.get("arguments")) for call in calls}


def made_up_arguments(tool: FunctionTool, which: int = 0) -> str:
    """Return JSON arguments of the types that the tool's schema declares; `which` is 0 or 1."""
    fields = tool.params_json_schema.get("properties", {})
    arguments = {
        name: schema["enum"][which % len(schema["enum"])]
        if schema.get("enum")
        else _MADE_UP[which].get(str(schema.get("type")), _MADE_UP[which]["string"])
        for name, schema in fields.items()
    }
    return json.dumps(arguments)


Rounds = Callable[[Script, Limits, Play], Sequence[Rollout]]


@dataclass(frozen=True, slots=True)
class ToolTrial:
    """Calls each function tool once, with the arguments of a worked call or made-up ones. `player`
    makes a player of a script and limits.

    A tool may refuse made-up arguments. It fails if a worked call fails, if it gives no result in
    time, or if made-up arguments of two kinds fail in the same way, which is not about arguments.
    """

    player: Callable[[Script, Limits], Any]
    play: PlaySettings
    case: Case
    examples: Sequence[WorkedExample] = ()

    def checks(self, functions: Sequence[FunctionTool]) -> list[Check]:
        """Return a result for each call, and one for tools that were not reached."""
        worked = worked_arguments(self.examples, self.case)
        given = {each.name: worked.get(each.name) or made_up_arguments(each) for each in functions}
        rollout = self._played(given)
        checks = [
            self._again(functions, call, self._judged(call, rollout, call.tool in worked))
            for call in rollout.tool_calls
        ]
        if rollout.ending is Ending.INFRASTRUCTURE_ERROR:
            if left := list(given)[len(rollout.tool_calls) :]:
                why = f"not called, because the rollout broke: {', '.join(left)}"
                is_reached = bool(rollout.tool_calls)
                detail = why if is_reached else rollout.detail
                checks.append(Check("calls the other tools", is_reached, detail, True))
        elif checks and all(_is_miss(call) for call in rollout.tool_calls):
            checks.append(_no_hit(rollout.tool_calls))
        return checks

    def _played(self, given: Mapping[str, str]) -> Rollout:
        calls = [
            RequestedCall(f"call-{number}", name, arguments)
            for number, (name, arguments) in enumerate(given.items())
        ]

        def reply(request: SampleRequest) -> Message:
            turn = request.key.turn
            return Message("assistant", "", calls=(calls[turn],)) if turn < len(calls) else _DONE

        limits = replace(
            self.play.limits(),
            max_turns=len(calls) + 1,
            completion_tokens=_AMPLE_TOKENS,
            tool_timeout=self._timeout,
        )
        plays = [Play(RolloutKey(0, 0, self.case.id, 0), self.case)]
        return asyncio.run(play_unjudged(self.player(reply, limits), plays))[0]

    @property
    def _timeout(self) -> float:
        seconds = self.play.tool_timeout
        return min(seconds, _DEADLINE) if seconds <= _USUAL_TIMEOUT else seconds

    def _judged(self, call: ToolCall, rollout: Rollout, is_worked: bool) -> Check:
        is_last = call is rollout.tool_calls[-1]
        raised = is_last and rollout.ending is Ending.INFRASTRUCTURE_ERROR  # the SDK passed it on
        failed = raised or call.failure is not None
        result = _one_line(rollout.detail if raised else call.result)
        must_work = is_worked or _SQLITE_THREAD_ERROR in result
        must_work = must_work or call.failure is CallFailure.DEADLINE
        shown = result[:SHOWN_CHARACTERS] + thread_advice(result)
        if call.failure is CallFailure.DEADLINE:
            shown = f"{result} Every rollout would wait: make it faster, or raise tool_timeout"
        return Check(f"calls {_call_text(call)}", not (failed and must_work), shown, failed)

    def _again(self, functions: Sequence[FunctionTool], call: ToolCall, check: Check) -> Check:
        """Call a tool that raised on made-up arguments with others; if it raises the same, it is
        the tool that fails."""
        about_arguments = _ABOUT_ARGUMENTS.search(f" {call.result}")
        if not check.ok or call.failure is not CallFailure.RAISED or about_arguments:
            return check
        tool = next(each for each in functions if each.name == call.tool)
        second = self._played({tool.name: made_up_arguments(tool, 1)}).tool_calls
        if not second or second[0].result != call.result:
            return check
        detail = f"{check.detail}; so it does with other arguments: mend the tool"
        return replace(check, ok=False, detail=detail)


def _is_miss(call: ToolCall) -> bool:
    return call.failure is None and _MISS.match(call.result.strip()) is not None


def _no_hit(calls: Sequence[ToolCall]) -> Check:
    tried = "; ".join(f"{_call_text(each)} → {_one_line(each.result)[:30]!r}" for each in calls)
    advice = "use a worked example whose values exist, so that the tools are tried on a hit"
    return Check("a tool finds something", True, f"no call did: {tried}; {advice}", True)


def _call_text(call: ToolCall) -> str:
    return f"{call.tool}({call.arguments[:SHOWN_CHARACTERS]})"


def _one_line(text: str) -> str:
    return " ".join(text.split())
