"""Replies to model calls, independent of a wire format, and the error that refuses a call."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sparring.contracts.rollouts import RequestedCall

MAIN = "main"
SUB_AGENT = "sub-agent"


class FinishReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


class Refused(Exception):
    """Answers a call with an HTTP error; `parameter` names the invalid field, if there is one."""

    def __init__(self, status: int, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.parameter = parameter


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The reply to one call. `number` is the number of its turn in the session, from 0.
    `stopped_at` is the stop sequence that ended it, if one did."""

    number: int
    content: str
    thinking: str
    calls: tuple[RequestedCall, ...]
    finish: FinishReason
    prompt_tokens: int
    sampled_tokens: int
    stopped_at: str = ""
