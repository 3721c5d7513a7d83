"""Conditions on a rollout's record: case, verdict, tool, text, advantage."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from sparring.run_folder.records import CaseRecord, JudgementRecord, RolloutRecord
from sparring.run_folder.sharded_log import needle_of

_SHOWN = 200
_JSON_SYNTAX = re.compile(r'["\\\[\]{}:,]')


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Conditions that a record must meet; an empty field is no condition."""

    case: str = ""
    question: str = ""
    measure: str = ""
    verdict: str = ""
    tool: str = ""
    text: str = ""
    min_advantage: float | None = None
    max_advantage: float | None = None

    def needles(self) -> list[bytes]:
        """Return texts that the line of every match contains, in lower case."""
        named = [json.dumps(each).lower().encode() for each in (self.case, self.measure, self.tool)]
        plain = [each for each in named if each != b'""' and b"\\u" not in each]
        # A question that is not text is shown as JSON with spaces, and stored without them.
        question = max((part.strip() for part in _JSON_SYNTAX.split(self.question)), key=len)
        return [*plain, *(needle_of(each) for each in (question, self.text) if each)]

    @property
    def needs_no_record(self) -> bool:
        """Whether there is no condition, so that no record has to be read in full."""
        return self == RecordFilter()

    def matches(self, record: RolloutRecord) -> bool:
        """Return whether the record meets every condition."""
        return (
            (not self.case or record["case"]["id"] == self.case)
            and (not self.question or self._matches_question(record["case"]))
            and self._matches_advantage(record)
            and self._matches_verdict(record)
            and (not self.tool or self.tool in _tools(record))
            and (not self.text or self._matches_text(record))
        )

    def _matches_question(self, case: CaseRecord) -> bool:
        return self.question.casefold() in shown_input(case).casefold()

    def _matches_advantage(self, record: RolloutRecord) -> bool:
        if self.min_advantage is None and self.max_advantage is None:
            return True
        advantage = record.get("advantage")
        least = -math.inf if self.min_advantage is None else self.min_advantage
        most = math.inf if self.max_advantage is None else self.max_advantage
        return advantage is not None and least <= advantage <= most

    def _matches_verdict(self, record: RolloutRecord) -> bool:
        judged = record["judgements"]
        if self.measure:
            judged = [each for each in judged if each["measure"] == self.measure]
            return any(not self.verdict or _verdict(each) == self.verdict for each in judged)
        if self.verdict == "passed":
            return bool(judged) and all(_verdict(each) == "passed" for each in judged)
        if self.verdict == "unscored" and not judged:
            return True
        return not self.verdict or any(_verdict(each) == self.verdict for each in judged)

    def _matches_text(self, record: RolloutRecord) -> bool:
        wanted = self.text.casefold()
        return any(wanted in text.casefold() for text in texts_of(record))


def shown_input(case: CaseRecord) -> str:
    """Return a case's input as text; of a conversation, only the last message with text."""
    given = case.get("input")
    if isinstance(given, str):
        return given
    for message in reversed(given if isinstance(given, list) else []):
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str) and content:
            return content
    return "" if given is None else json.dumps(given, ensure_ascii=False)[:_SHOWN]


def texts_of(record: RolloutRecord) -> Iterator[str]:
    """Yield the texts of a rollout that a search covers: answer, detail, messages, tool calls and
    reasons."""
    yield str(record["answer"])
    yield str(record["detail"])
    for message in record["messages"]:
        yield str(message.get("content") or "")
        yield str(message.get("thinking") or "")
        for call in message.get("calls") or ():
            yield str(call.get("tool"))
            yield str(call.get("arguments"))
    for judgement in record["judgements"]:
        yield str(judgement["reason"])


def _tools(record: RolloutRecord) -> set[str]:
    return {str(call.get("tool")) for call in record["tool_calls"]}


def _verdict(judgement: JudgementRecord) -> str:
    score = judgement["score"]
    if score is None:
        return "unscored"
    return "passed" if score >= judgement["threshold"] else "failed"
