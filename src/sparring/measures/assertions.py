"""The measure `assertions`, which checks an answer against promptfoo's assertions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import jsonschema
import regex as regular

from sparring.contracts.rollouts import Rollout
from sparring.contracts.verdicts import Verdict, cannot_tell, failed, passed
from sparring.measures.builtin import SEARCH_SECONDS, shortened
from sparring.measures.declaration import Measure


def assertions(*, name: str = "assertions") -> Measure:
    """Passes if the answer meets all of its case's assertions (see `Suite.from_promptfoo`)."""

    def judge(rollout: Rollout) -> Verdict:
        listed = rollout.case.fields.get("assertions")
        if not listed:
            return cannot_tell(f"case {rollout.case.id} has no assertions")
        for each in listed:
            holds = ASSERTIONS[each["type"]](rollout.answer, each["value"])
            if holds == each["is_negated"]:
                return failed(f"not met: {_shown(each)}; the answer is {shortened(rollout.answer)}")
        return passed("meets " + "; ".join(map(_shown, listed)))

    return Measure(name, judge)


def _contains_json(answer: str, schema: Any) -> bool:
    decoder = json.JSONDecoder()
    for place, character in enumerate(answer):
        if character in "{[":
            try:
                found, _ = decoder.raw_decode(answer, place)
            except (ValueError, RecursionError):
                continue
            if _is_valid(found, schema):
                return True
    return False


def _is_json(answer: str, schema: Any) -> bool:
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        return False
    return _is_valid(found, schema)


def _is_valid(value: Any, schema: Any) -> bool:
    """Return whether a value is valid under a JSON schema, an object or its text; None allows all
    values."""
    if schema is None or schema == "":
        return True
    rules = json.loads(schema) if isinstance(schema, str) else schema
    return jsonschema.Draft202012Validator(rules).is_valid(value)


def _equals(answer: str, value: Any) -> bool:
    if isinstance(value, dict | list):
        try:
            return bool(json.loads(answer) == value)
        except (ValueError, RecursionError):
            return False
    return answer.strip() == _text(value).strip()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _texts(value: Any) -> list[str]:
    return [_text(each) for each in (value if isinstance(value, list) else [value])]


def _matches(answer: str, pattern: Any) -> bool:
    found = regular.search(_text(pattern), answer, timeout=SEARCH_SECONDS, concurrent=True)
    return found is not None


ASSERTIONS: Mapping[str, Callable[[str, Any], bool]] = {
    "equals": _equals,
    "contains": lambda answer, value: _text(value) in answer,
    "icontains": lambda answer, value: _text(value).casefold() in answer.casefold(),
    "contains-any": lambda answer, value: any(each in answer for each in _texts(value)),
    "contains-all": lambda answer, value: all(each in answer for each in _texts(value)),
    "icontains-any": lambda answer, value: any(
        each.casefold() in answer.casefold() for each in _texts(value)
    ),
    "icontains-all": lambda answer, value: all(
        each.casefold() in answer.casefold() for each in _texts(value)
    ),
    "starts-with": lambda answer, value: answer.startswith(_text(value)),
    "regex": _matches,
    "is-json": _is_json,
    "contains-json": _contains_json,
}


def _shown(assertion: Mapping[str, Any]) -> str:
    kind = ("not-" if assertion["is_negated"] else "") + assertion["type"]
    return kind if assertion["value"] is None else f"{kind} {shortened(_text(assertion['value']))}"
