"""What answers for the model, seen from the player.

A token policy turns token ids into sampled ids with their log-probabilities; a chat
policy turns messages into a reply and can be played, but not trained.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from sparring.contracts.rollouts import Message, RolloutKey


class Finish(StrEnum):
    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class SampleKey:
    """Seeds one turn of one rollout."""

    rollout: RolloutKey
    turn: int

    def seed(self) -> int:
        """63 bits that depend on the key alone, on every machine and in every process."""
        key = self.rollout
        text = f"{key.seed}\x1f{key.step}\x1f{key.case_id}\x1f{key.index}\x1f{self.turn}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1

    def order(self) -> tuple[int, str, int, int]:
        """Where the request stands in its batch, whenever it happened to arrive."""
        return (self.rollout.step, self.rollout.case_id, self.rollout.index, self.turn)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn: by temperature only, so that sampler and trainer agree.

    `repetition_penalty` is for talking to a trained model; nothing is learned under it.
    """

    temperature: float = 0.8
    max_tokens: int = 1024
    repetition_penalty: float = 1.0


@dataclass(frozen=True, slots=True)
class SampleRequest:
    key: SampleKey
    prompt: array[int]
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Sample:
    """Sampled ids, the stop token included, and the log-probability of each of them."""

    ids: array[int]
    logprobs: array[float]
    finish: Finish


@dataclass(frozen=True, slots=True)
class ParsedCall:
    tool: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model said, taken apart. `malformed` says what was wrong with a call."""

    content: str
    thinking: str = ""
    calls: tuple[ParsedCall, ...] = ()
    malformed: str = ""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    key: SampleKey
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]]
    sampling: Sampling
    output_schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ChatReply:
    reply: Reply
    finish: Finish
    prompt_tokens: int
    sampled_tokens: int


@dataclass(frozen=True, slots=True)
class BodySpan:
    """Tokens of the text of the n-th message, scaffolding left out."""

    message: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Encoded:
    ids: array[int]
    bodies: tuple[BodySpan, ...] = ()


class Codec(Protocol):
    """Between messages and token ids, for one model family."""

    def encode_prompt(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> Encoded: ...

    def encode_continuation(self, messages: Sequence[Message]) -> Encoded: ...

    def parse(self, ids: array[int]) -> Reply: ...


@runtime_checkable
class TokenPolicy(Protocol):
    """Samples by token ids.

    `plays_in_waves` says that the composition of a batch must not depend on timing: the
    player then announces each rollout with `join` and takes it off with `leave`.
    """

    name: str

    @property
    def codec(self) -> Codec: ...

    @property
    def plays_in_waves(self) -> bool: ...

    def join(self) -> None: ...

    def leave(self) -> None: ...

    async def sample(self, request: SampleRequest) -> Sample: ...


@runtime_checkable
class ChatPolicy(Protocol):
    """Answers by messages; nothing to learn from, but good enough to be compared with."""

    name: str

    async def reply(self, request: ChatRequest) -> ChatReply: ...


Policy = TokenPolicy | ChatPolicy


def is_played_in_waves(policy: Policy) -> bool:
    """Whether rollouts of this policy go in blocks that repeat exactly; a chat never does."""
    return isinstance(policy, TokenPolicy) and policy.plays_in_waves
