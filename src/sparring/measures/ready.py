"""Ready-made measures. Each is a factory; by name, it is used with its defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import jsonschema
import regex as regular

from sparring.contracts.errors import MeasureError
from sparring.contracts.rollouts import Ending, Rollout
from sparring.contracts.verdicts import Outcome, Verdict, cannot_tell, failed, passed
from sparring.measures.declaration import Measure

_NUMBER = re.compile(r"[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,3})?")
_LATIN = re.compile(r"[A-Za-z0-9]")
_SHOWN = 120
_SECONDS = 2.0  # of one search


def exact(*, ignore_case: bool = True, name: str = "exact") -> Measure:
    """The answer is the expected text, white space at the ends aside."""

    def judge(rollout: Rollout, expected: Any) -> Verdict:
        answer, wanted = rollout.answer.strip(), str(expected).strip()
        same = answer.casefold() == wanted.casefold() if ignore_case else answer == wanted
        if same:
            return passed(f"the answer is {_short(wanted)}")
        return failed(f"expected {_short(wanted)}, got {_short(answer)}")

    return Measure(name, _against_expected(judge))


def contains(
    text: str | None = None,
    *,
    ignore_case: bool = True,
    whole_words: bool = True,
    name: str = "contains",
) -> Measure:
    """The answer contains a text: the given one, or the expected one. By default as whole words:
    an answer of 1428 does not contain 42."""

    def judge(rollout: Rollout, expected: Any) -> Verdict:
        answer, part = rollout.answer, str(expected)
        if _holds(answer, part, ignore_case=ignore_case, whole_words=whole_words):
            return passed(f"contains {_short(part)}")
        return failed(f"does not contain {_short(part)}: {_short(answer)}")

    return Measure(name, _against_expected(judge, text))


def numeric(*, tolerance: float = 1e-9, name: str = "numeric") -> Measure:
    """The last number of the answer is the expected number, within a tolerance."""

    def judge(rollout: Rollout, expected: Any) -> Verdict:
        wanted = _last_number(str(expected))
        if wanted is None:
            return cannot_tell(f"the case expects {expected!r}, which is no number")
        got = _last_number(rollout.answer)
        if got is None:
            return failed(f"no number in {_short(rollout.answer)}")
        if abs(got - wanted) <= tolerance * max(1.0, abs(wanted)):
            return passed(f"the last number is {got:g}")
        return failed(f"expected {wanted:g}, the last number is {got:g}")

    return Measure(name, _against_expected(judge))


def regex(pattern: str | None = None, *, name: str = "regex") -> Measure:
    """The answer matches a regular expression somewhere: the given, or the expected one. A search
    that takes too long leaves the rollout unscored, and holds up nothing else meanwhile."""
    if pattern is not None:
        try:
            regular.compile(pattern)
        except regular.error as error:
            raise MeasureError(f"regex({pattern!r}) is no regular expression: {error}") from error

    def judge(rollout: Rollout, expected: Any) -> Verdict:
        if regular.search(str(expected), rollout.answer, timeout=_SECONDS, concurrent=True):
            return passed(f"matches {_short(str(expected))}")
        return failed(f"does not match {_short(str(expected))}: {_short(rollout.answer)}")

    return Measure(name, _against_expected(judge, pattern))


def json_schema(schema: Mapping[str, Any] | None = None, *, name: str = "json_schema") -> Measure:
    """The answer is JSON that fits a schema: the given one, or the expected one."""
    if schema is not None:
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise MeasureError(f"json_schema(…) got no JSON schema: {error.message}") from error

    def judge(rollout: Rollout) -> Verdict:
        wanted = rollout.expected if schema is None else schema
        if not isinstance(wanted, Mapping):
            return cannot_tell(f"the case expects {_short(repr(wanted))}, which is no JSON schema")
        try:
            value = json.loads(rollout.answer)
        except (ValueError, RecursionError) as error:
            return failed(f"the answer is not JSON: {error}")
        problem = next(iter(jsonschema.Draft202012Validator(wanted).iter_errors(value)), None)
        if problem is None:
            return passed("fits the schema")
        return failed(f"at {problem.json_path}: {_short(problem.message)}")

    return Measure(name, judge, is_side_condition=True)


def tool_called(tool: str | None = None, *, name: str | None = None) -> Measure:
    """A tool was called: the given one, or any."""

    def judge(rollout: Rollout) -> Verdict:
        called = [call.tool for call in rollout.tool_calls if call.failure != "unknown_tool"]
        if tool is None and called:
            return passed(f"called {called[0]}")
        if tool in called:
            return passed(f"called {tool} {called.count(tool)} times")
        listed = ", ".join(dict.fromkeys(called)) or "no tool"
        return failed(f"called {listed}" + (f", not {tool}" if tool else ""))

    return Measure(name or (f"called_{tool}" if tool else "tool_called"), judge)


def no_tool_failed(*, name: str = "no_tool_failed") -> Measure:
    """No tool call failed, was unknown, ran out of time or could not be read."""

    def judge(rollout: Rollout) -> Verdict:
        if rollout.ending is Ending.UNPARSABLE_CALL:
            return failed("a tool call could not be read")
        for call in rollout.tool_calls:
            if call.failure is not None:
                return failed(f"{call.tool}: {call.failure.value}: {_short(call.result)}")
        return passed(f"{len(rollout.tool_calls)} tool calls, none failed")

    return Measure(name, judge, is_side_condition=True)


def length(*, words: int = 200, name: str = "length") -> Measure:
    """The answer is not empty and has at most so many words."""

    def judge(rollout: Rollout) -> Verdict:
        count = len(rollout.answer.split())
        if count == 0:
            return failed("the answer is empty")
        if count > words:
            return failed(f"{count} words, at most {words} are asked for")
        return passed(f"{count} words")

    return Measure(name, judge, is_side_condition=True)


READY: Mapping[str, Callable[[], Measure]] = {
    "exact": exact,
    "contains": contains,
    "numeric": numeric,
    "regex": regex,
    "json_schema": json_schema,
    "tool_called": tool_called,
    "no_tool_failed": no_tool_failed,
    "length": length,
}


def _against_expected(
    judge: Callable[[Rollout, Any], Verdict], given: Any = None
) -> Callable[[Rollout], Verdict]:
    """Hold an answer against what the case expects, or what was given; of a list, any will do."""

    def judge_any(rollout: Rollout) -> Verdict:
        expected = rollout.expected if given is None else given
        alternatives = list(expected) if isinstance(expected, list | tuple) else [expected]
        if not alternatives or alternatives == [None]:
            return _nothing_expected(rollout)
        verdicts = [judge(rollout, each) for each in alternatives]
        best = max(verdicts, key=lambda each: (each.outcome is Outcome.PASSED, each.score is None))
        if len(verdicts) == 1 or best.outcome is not Outcome.FAILED:
            return best
        return failed(f"none of {len(verdicts)} right answers; {best.reason}")

    return judge_any


def _last_number(text: str) -> float | None:
    found = _NUMBER.findall(text)
    if not found or len(found[-1]) > 300:
        return None
    return float(found[-1].replace(",", "").replace("−", "-"))


def _holds(text: str, part: str, *, ignore_case: bool, whole_words: bool) -> bool:
    """Only Latin letters and digits have borders: other scripts write words without spaces."""
    if ignore_case:
        text, part = text.casefold(), part.casefold()
    if not whole_words:
        return part in text
    before = r"(?<![A-Za-z0-9])" if _LATIN.match(part[:1]) else ""
    after = r"(?![A-Za-z0-9])" if _LATIN.match(part[-1:]) else ""
    return re.search(before + re.escape(part) + after, text) is not None


def _nothing_expected(rollout: Rollout) -> Verdict:
    return cannot_tell(f"case {rollout.case.id} says nothing of what is expected")


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
