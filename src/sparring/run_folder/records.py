"""Converts rollouts to JSON records and back.

Records contain no times, so that equal plays give equal bytes.
"""

from __future__ import annotations

import base64
from array import array
from typing import Any

from sparring.contracts.cases import Case, Split
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


def to_record(rollout: Rollout) -> dict[str, Any]:
    """Return the log record of a rollout: all fields except live objects (`world`, `output`)."""
    key, case = rollout.key, rollout.case
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
        **({} if rollout.advantage is None else {"advantage": rollout.advantage}),
        **({"dropped": rollout.dropped} if rollout.dropped else {}),
        "judgements": [_judgement_record(judgement) for judgement in rollout.judgements],
        "turns": rollout.turns,
        "tokens": {"prompt": rollout.tokens.prompt, "sampled": rollout.tokens.sampled},
        "messages": [_message_record(message) for message in rollout.messages],
        "tool_calls": [_call_record(call) for call in rollout.tool_calls],
        "rows": [_row_record(row) for row in rollout.rows],
    }


def from_record(record: dict[str, Any]) -> Rollout:
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


def _judgement_record(judgement: Judgement) -> dict[str, Any]:
    return {
        "measure": judgement.measure,
        "outcome": judgement.verdict.outcome.value,
        "score": judgement.verdict.score,
        "reason": judgement.verdict.reason,
        "weight": judgement.weight,
        "threshold": judgement.threshold,
        "cause": judgement.cause,
    }


def _judgement(row: dict[str, Any]) -> Judgement:
    verdict = Verdict(Outcome(row["outcome"]), row["reason"], row["score"])
    return Judgement(row["measure"], verdict, row["weight"], row["threshold"], row["cause"])


def _message_record(message: Message) -> dict[str, Any]:
    record: dict[str, Any] = {"role": message.role, "content": message.content}
    for name in ("agent", "thinking", "call_id"):
        if value := getattr(message, name):
            record[name] = value
    if message.calls:
        record["calls"] = [
            {"id": call.id, "tool": call.tool, "arguments": call.arguments}
            for call in message.calls
        ]
    return record


def _message(row: dict[str, Any]) -> Message:
    calls = tuple(RequestedCall(**call) for call in row.get("calls", ()))
    return Message(**{**row, "calls": calls})


def _call_record(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "tool": call.tool,
        "arguments": call.arguments,
        "result": call.result,
        "failure": call.failure.value if call.failure else None,
        "agent": call.agent,
    }


def _call(row: dict[str, Any]) -> ToolCall:
    failure = CallFailure(row["failure"]) if row["failure"] else None
    return ToolCall(**{**row, "failure": failure})


def _row_record(row: TokenRow) -> dict[str, Any]:
    return {
        "agent": row.agent,
        "start": row.start.value,
        **({} if row.parent is None else {"parent": row.parent}),
        "ids": _pack(row.ids),
        "logprobs": _pack(row.logprobs),
        **({"versions": [list(run) for run in row.versions]} if row.versions else {}),
        **({"gaps": _pack(row.gaps)} if row.gaps else {}),
        **({"discarded": True} if row.is_discarded else {}),
        "spans": [[span.kind.value, span.length] for span in row.spans],
        "bodies": [[body.tool, body.start, body.stop] for body in row.bodies],
    }


def _row(record: dict[str, Any]) -> TokenRow:
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
