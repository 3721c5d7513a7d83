"""Converts rollouts to JSON records and back.

Records contain no times, so that equal plays give equal bytes. Of a long record, the first 64 KiB
hold the fields that a list shows.
"""

from __future__ import annotations

import base64
import json
import re
from array import array
from typing import Any, NotRequired, TypedDict, cast

from sparring.contracts.cases import Case, Split
from sparring.contracts.json import JsonObject
from sparring.contracts.rollouts import (
    CallFailure,
    Ending,
    Message,
    RequestedCall,
    ResultBody,
    Rollout,
    RolloutKey,
    RowStart,
    Span,
    TokenKind,
    TokenRow,
    TokenUse,
    ToolCall,
)
from sparring.contracts.specs import FORMAT
from sparring.contracts.verdicts import Judgement, Outcome, Verdict

HEAD_BYTES = 65_536
_DECODER = json.JSONDecoder()
_KEY = re.compile(r'[{,]"((?:[^"\\]|\\.){1,80})":')
_DEFAULTS: JsonObject = {
    "id": "",
    "case": {},
    "detail": "",
    "answer": "",
    "judgements": [],
}


class CaseRecord(TypedDict):
    """A case, without its fields and measures."""

    id: str
    input: str | list[dict[str, Any]]
    expected: Any
    split: str


class JudgementRecord(TypedDict):
    """One measure's verdict."""

    measure: str
    outcome: str
    score: float | None
    reason: str
    weight: float
    threshold: float
    cause: str | None


class RequestedCallRecord(TypedDict):
    """A tool call in a message."""

    id: str
    tool: str
    arguments: str


class MessageRecord(TypedDict):
    """One message; empty fields are left out."""

    role: str
    content: str
    agent: NotRequired[str]
    thinking: NotRequired[str]
    call_id: NotRequired[str]
    calls: NotRequired[list[RequestedCallRecord]]


class ToolCallRecord(RequestedCallRecord):
    """A tool call with its result."""

    result: str
    failure: str | None
    agent: str


class _RowMarks(TypedDict, total=False):
    parent: int
    versions: list[list[int]]
    gaps: str
    discarded: bool


class RowRecord(_RowMarks):
    """A token row; numbers are packed in base64."""

    agent: str
    start: str
    ids: str
    logprobs: str
    spans: list[tuple[str, int]]
    bodies: list[tuple[str, int, int]]


class _RolloutMarks(TypedDict, total=False):
    advantage: float
    dropped: str
    is_cut: bool


class RolloutRecord(_RolloutMarks):
    """One line of a rollout log. The head of a long line has `is_cut`, and no further fields than
    a list shows."""

    format: int
    id: str
    key: dict[str, int]
    case: CaseRecord
    ending: str
    detail: str
    answer: str
    reward: float | None
    judgements: list[JudgementRecord]
    turns: int
    tokens: dict[str, int]
    messages: list[MessageRecord]
    tool_calls: list[ToolCallRecord]
    rows: list[RowRecord]


def to_record(rollout: Rollout) -> RolloutRecord:
    """Return the log record of a rollout: all fields except live objects (`world`, `output`)."""
    key, case = rollout.key, rollout.case
    marks = _RolloutMarks()
    if rollout.advantage is not None:
        marks["advantage"] = rollout.advantage
    if rollout.dropped:
        marks["dropped"] = rollout.dropped
    return {
        "format": FORMAT,
        "id": rollout.id,
        "key": {"seed": key.seed, "step": key.step, "index": key.index},
        "case": {
            "id": case.id,
            "input": case.input,
            "expected": case.expected,
            "split": case.split.value,
        },
        "ending": rollout.ending.value,
        "detail": rollout.detail,
        "answer": rollout.answer,
        "reward": rollout.reward,
        **marks,
        "judgements": [_judgement_record(judgement) for judgement in rollout.judgements],
        "turns": rollout.turns,
        "tokens": {"prompt": rollout.tokens.prompt, "sampled": rollout.tokens.sampled},
        "messages": [_message_record(message) for message in rollout.messages],
        "tool_calls": [_call_record(call) for call in rollout.tool_calls],
        "rows": [_row_record(row) for row in rollout.rows],
    }


def from_record(record: RolloutRecord) -> Rollout:
    """Return the rollout of a record, without `world` and `output`, which are not stored."""
    case, key, tokens = record["case"], record["key"], record["tokens"]
    return Rollout(
        key=RolloutKey(key["seed"], key["step"], case["id"], key["index"]),
        case=Case(case["id"], case["input"], case["expected"], Split(case["split"])),
        ending=Ending(record["ending"]),
        answer=record["answer"],
        detail=record["detail"],
        reward=record["reward"],
        advantage=record.get("advantage"),
        dropped=record.get("dropped", ""),
        turns=record["turns"],
        tokens=TokenUse(tokens["prompt"], tokens["sampled"]),
        messages=tuple(_message(row) for row in record["messages"]),
        tool_calls=tuple(_call(row) for row in record["tool_calls"]),
        judgements=tuple(_judgement(row) for row in record["judgements"]),
        rows=tuple(_row(row) for row in record["rows"]),
    )


def _judgement_record(judgement: Judgement) -> JudgementRecord:
    return {
        "measure": judgement.measure,
        "outcome": judgement.verdict.outcome.value,
        "score": judgement.verdict.score,
        "reason": judgement.verdict.reason,
        "weight": judgement.weight,
        "threshold": judgement.threshold,
        "cause": judgement.cause,
    }


def _judgement(row: JudgementRecord) -> Judgement:
    verdict = Verdict(Outcome(row["outcome"]), row["reason"], row["score"])
    return Judgement(row["measure"], verdict, row["weight"], row["threshold"], row["cause"])


def _message_record(message: Message) -> MessageRecord:
    record = MessageRecord(role=message.role, content=message.content)
    if message.agent:
        record["agent"] = message.agent
    if message.thinking:
        record["thinking"] = message.thinking
    if message.call_id:
        record["call_id"] = message.call_id
    if message.calls:
        record["calls"] = [
            {"id": call.id, "tool": call.tool, "arguments": call.arguments}
            for call in message.calls
        ]
    return record


def _message(row: MessageRecord) -> Message:
    return Message(
        row["role"],
        row["content"],
        agent=row.get("agent", ""),
        thinking=row.get("thinking", ""),
        calls=tuple(RequestedCall(**call) for call in row.get("calls", ())),
        call_id=row.get("call_id", ""),
    )


def _call_record(call: ToolCall) -> ToolCallRecord:
    return {
        "id": call.id,
        "tool": call.tool,
        "arguments": call.arguments,
        "result": call.result,
        "failure": call.failure.value if call.failure else None,
        "agent": call.agent,
    }


def _call(row: ToolCallRecord) -> ToolCall:
    failure = CallFailure(row["failure"]) if row["failure"] else None
    return ToolCall(row["id"], row["tool"], row["arguments"], row["result"], failure, row["agent"])


def _row_record(row: TokenRow) -> RowRecord:
    start: _RowMarks = {} if row.parent is None else {"parent": row.parent}
    marks = _RowMarks()
    if row.versions:
        marks["versions"] = [list(run) for run in row.versions]
    if row.gaps:
        marks["gaps"] = _pack(row.gaps)
    if row.is_discarded:
        marks["discarded"] = True
    return {
        "agent": row.agent,
        "start": row.start.value,
        **start,
        "ids": _pack(row.ids),
        "logprobs": _pack(row.logprobs),
        **marks,
        "spans": [(span.kind.value, span.length) for span in row.spans],
        "bodies": [(body.tool, body.start, body.stop) for body in row.bodies],
    }


def _row(record: RowRecord) -> TokenRow:
    return TokenRow(
        agent=record["agent"],
        ids=_unpack("i", record["ids"]),
        logprobs=_unpack("f", record["logprobs"]),
        spans=tuple(Span(TokenKind(kind), length) for kind, length in record["spans"]),
        bodies=tuple(ResultBody(*body) for body in record["bodies"]),
        start=RowStart(record["start"]),
        parent=record.get("parent"),
        versions=tuple((version, tokens) for version, tokens in record.get("versions", ())),
        gaps=_unpack("f", record.get("gaps", "")),
        is_discarded=record.get("discarded", False),
    )


def _pack(values: array[Any]) -> str:
    """Encode 32-bit numbers as base64, in about a third of the size of a JSON list."""
    return base64.b64encode(values.tobytes()).decode("ascii")


def _unpack(code: str, text: str) -> array[Any]:
    values: array[Any] = array(code)
    values.frombytes(base64.b64decode(text))
    return values


def read_head(line: bytes) -> RolloutRecord:
    """Return the fields at the beginning of a record, up to the first field that is cut off.
    Missing fields that a list needs are empty, and `is_cut` is true."""
    text = line[:HEAD_BYTES].decode("ascii", "replace")
    found: JsonObject = {}
    place = 0
    while (match := _KEY.match(text, place)) is not None:
        try:
            value, place = _DECODER.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            break
        found[match[1]] = value
    case = {"id": "", "input": None, **(found.get("case") or _cut_case(text))}
    return cast("RolloutRecord", {**_DEFAULTS, **found, "case": case, "is_cut": True})


def _cut_case(text: str) -> JsonObject:
    """Return the id of a case whose input is cut off."""
    match = re.search(r'"case":\{"id":', text)
    if match is None:
        return {}
    try:
        return {"id": _DECODER.raw_decode(text, match.end())[0]}
    except ValueError:
        return {}
