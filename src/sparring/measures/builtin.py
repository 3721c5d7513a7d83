"""Factories of the built-in measures. A measure that is given by name uses the defaults."""

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

# A fraction may lack its zero, as in "$.75", but "step.5" and "...5" end with 5.
_NUMBER = re.compile(
    r"(?:(?<!\d)[-+−])?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|(?<![\w.])\.\d+)"
    r"(?:[eE][-+]?\d{1,3})?"
)
_LATIN = re.compile(r"[A-Za-z0-9]")
_SHOWN_CHARACTERS = 120
SEARCH_SECONDS = 2.0


def exact(*, ignore_case: bool = True, name: str = "exact") -> Measure:
    """Passes if the answer equals the expected text. Ignores white space at both ends, and case
    unless `ignore_case` is off."""

    def judge(rollout: Rollout, expected: Any) -> Verdict:
        answer, wanted = rollout.answer.strip(), str(expected).strip()
        is_same = answer.casefold() == wanted.casefold() if ignore_case else answer == wanted
        if is_same:
            return passed(f"the answer is {shortened(wanted)}")
        return failed(f"expected {shortened(wanted)}, got {shortened(answer)}")

    return Measure(name, _against_expected(judge))


def contains(
    text: str | None = None,
    *,
    ignore_case: bool = True,
    whole_words: bool = True,
    name: str = "contains",
) -> Measure:
    """Passes if the answer contains `text`, or the expected text if none is given. By default
    it matches whole words: 42 is not found in 1428."""

    def judge(rollout: Rollout, expected: Any) -> Verdict:
        answer, part = rollout.answer, str(expected)
        if not part:  # every answer contains it
            return _missing_expectation(rollout)
        if _contains(answer, part, ignore_case=ignore_case, whole_words=whole_words):
            return passed(f"contains {shortened(part)}")
        return failed(f"does not contain {shortened(part)}: {shortened(answer)}")

    return Measure(name, _against_expected(judge, text))


def numeric(*, tolerance: float = 1e-9, name: str = "numeric") -> Measure:
    """Passes if the last number of the answer equals the expected one within `tolerance`. It is
    relative if the expected number is above 1 or below -1, and absolute otherwise."""

    def judge(rollout: Rollout, expected: Any) -> Verdict:
        wanted = _last_number(str(expected))
        if wanted is None:
            return cannot_tell(f"the case expects {expected!r}, which is not a number")
        got = _last_number(rollout.answer)
        if got is None:
            return failed(f"no number in {shortened(rollout.answer)}")
        if abs(got - wanted) <= tolerance * max(1.0, abs(wanted)):
            return passed(f"the last number is {got:g}")
        return failed(f"expected {wanted:g}, the last number is {got:g}")

    return Measure(name, _against_expected(judge))


def regex(pattern: str | None = None, *, name: str = "regex") -> Measure:
    """Passes if `pattern`, or the expected pattern if none is given, matches anywhere in the
    answer. If the search takes more than two seconds, the rollout stays unscored."""
    if pattern is not None:
        try:
            regular.compile(pattern)
        except regular.error as error:
            raise MeasureError(
                f"regex({pattern!r}) is not a valid regular expression: {error}"
            ) from error

    def judge(rollout: Rollout, expected: Any) -> Verdict:
        if not str(expected):  # every answer matches it
            return _missing_expectation(rollout)
        if regular.search(str(expected), rollout.answer, timeout=SEARCH_SECONDS, concurrent=True):
            return passed(f"matches {shortened(str(expected))}")
        return failed(f"does not match {shortened(str(expected))}: {shortened(rollout.answer)}")

    return Measure(name, _against_expected(judge, pattern))


def json_schema(schema: Mapping[str, Any] | None = None, *, name: str = "json_schema") -> Measure:
    """Passes if the answer is JSON that is valid under `schema`, or under the expected schema if
    none is given."""
    if schema is not None:
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise MeasureError(
                f"json_schema(…) got an invalid JSON schema: {error.message}"
            ) from error

    def judge(rollout: Rollout) -> Verdict:
        wanted = rollout.expected if schema is None else schema
        if not isinstance(wanted, Mapping):
            return cannot_tell(
                f"the case expects {shortened(str(wanted))}, which is not a JSON schema"
            )
        try:
            value = json.loads(rollout.answer)
        except (ValueError, RecursionError) as error:
            return failed(f"the answer is not JSON: {error}")
        problem = next(iter(jsonschema.Draft202012Validator(wanted).iter_errors(value)), None)
        if problem is None:
            return passed("fits the schema")
        return failed(f"at {problem.json_path}: {shortened(problem.message)}")

    return Measure(name, judge, is_side_condition=True)


def tool_called(tool: str | None = None, *, name: str | None = None) -> Measure:
    """Passes if `tool` was called, or any tool if none is given. Calls of unknown tools do not
    count."""

    def judge(rollout: Rollout) -> Verdict:
        called = [call.tool for call in rollout.tool_calls if call.failure != "unknown_tool"]
        if tool is None and called:
            return passed(f"called {called[0]}")
        if tool in called:
            count = called.count(tool)
            return passed(f"called {tool} {count} times" if count > 1 else f"called {tool} once")
        listed = ", ".join(dict.fromkeys(called)) or "no tool"
        return failed(f"called {listed}" + (f", not {tool}" if tool else ""))

    return Measure(name or (f"called_{tool}" if tool else "tool_called"), judge)


def no_tool_failed(*, name: str = "no_tool_failed") -> Measure:
    """Passes if every tool call could be parsed, named a known tool and returned a result."""

    def judge(rollout: Rollout) -> Verdict:
        if rollout.ending is Ending.UNPARSABLE_CALL:
            return failed("a tool call could not be parsed")
        for call in rollout.tool_calls:
            if call.failure is not None:
                return failed(f"{call.tool}: {call.failure.value}: {shortened(call.result)}")
        return passed(f"{len(rollout.tool_calls)} tool calls, none failed")

    return Measure(name, judge, is_side_condition=True)


def length(*, words: int = 200, name: str = "length") -> Measure:
    """Passes if the answer is not empty and has at most `words` words."""

    def judge(rollout: Rollout) -> Verdict:
        count = len(rollout.answer.split())
        if count == 0:
            return failed("the answer is empty")
        if count > words:
            return failed(f"{count} words, more than the maximum of {words}")
        return passed(f"{count} words")

    return Measure(name, judge, is_side_condition=True)


BUILTIN: Mapping[str, Callable[[], Measure]] = {
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
    judge: Callable[[Rollout, Any], Verdict], fixed: Any = None
) -> Callable[[Rollout], Verdict]:
    """Return a judge for `fixed`, or else the expected value; any item of a list may match."""

    def judge_any(rollout: Rollout) -> Verdict:
        expected = rollout.expected if fixed is None else fixed
        alternatives = list(expected) if isinstance(expected, list | tuple) else [expected]
        if not alternatives or alternatives == [None]:
            return _missing_expectation(rollout)
        verdicts = [judge(rollout, alternative) for alternative in alternatives]
        best = max(verdicts, key=lambda v: (v.outcome is Outcome.PASSED, v.score is None))
        if len(verdicts) == 1 or best.outcome is not Outcome.FAILED:
            return best
        return failed(f"none of {len(verdicts)} expected answers matches; {best.reason}")

    return judge_any


def _last_number(text: str) -> float | None:
    numbers = _NUMBER.findall(text)
    if not numbers or len(numbers[-1]) > 300:
        return None
    return float(numbers[-1].replace(",", "").replace("−", "-"))


def _contains(text: str, part: str, *, ignore_case: bool, whole_words: bool) -> bool:
    """Whole words are bounded by ASCII letters and digits only: some scripts use no spaces."""
    if ignore_case:
        text, part = text.casefold(), part.casefold()
    if not whole_words:
        return part in text
    before = r"(?<![A-Za-z0-9])" if _LATIN.match(part[:1]) else ""
    after = r"(?![A-Za-z0-9])" if _LATIN.match(part[-1:]) else ""
    return re.search(before + re.escape(part) + after, text) is not None


def _missing_expectation(rollout: Rollout) -> Verdict:
    return cannot_tell(f"case {rollout.case.id} has no expected value")


def shortened(text: str) -> str:
    """Return the `repr` of a text, which is first shortened to 120 characters."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…")
