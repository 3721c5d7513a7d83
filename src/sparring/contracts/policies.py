"""Policies: the sources of a model's replies.

A token policy turns token ids into sampled ids with their log-probabilities. A chat policy turns
messages into a reply; it can be played, but not trained.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Protocol, TypeGuard, runtime_checkable

from sparring.contracts.chat import ToolSchema
from sparring.contracts.json import JsonObject, JsonSchema
from sparring.contracts.rollouts import Message, RequestedCall, RolloutKey


class Finish(StrEnum):
    """Why sampling ended: a stop token, or the token limit."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class SampleKey:
    """Identifies and seeds one turn of one rollout. `branch` distinguishes turns that have the same
    number in different conversations of the rollout. It is empty for a conversation that starts
    with the case's messages and never branches."""

    rollout: RolloutKey
    turn: int
    branch: str = ""

    def seed(self) -> int:
        """Return a 63-bit seed that depends only on the key, not on the machine or process."""
        key = self.rollout
        text = f"{key.seed}\x1f{key.step}\x1f{key.case_id}\x1f{key.index}\x1f{self.turn}"
        if self.branch:
            text += f"\x1f{self.branch}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1

    def order(self) -> tuple[int, str, int, int, str]:
        """Return the sort key of a request in its batch, independent of arrival order."""
        return (self.rollout.step, self.rollout.case_id, self.rollout.index, self.turn, self.branch)


@dataclass(frozen=True, slots=True)
class Sampling:
    """The parameters of sampling. Training shapes the distribution by `temperature` alone, so that
    sampler and trainer agree; `top_p` and the penalties are for evaluation and the shipped agent.
    """

    temperature: float = 0.8
    max_tokens: int = 1024
    repetition_penalty: float = 1.0
    top_p: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One turn to sample."""

    key: SampleKey
    prompt: array[int]
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Sample:
    """Sampled ids, with the stop token if one ended the sample, and the log-probability of each.

    `version` is the version of the weights that sampled them; None if it is not known.
    """

    ids: array[int]
    logprobs: array[float]
    finish: Finish
    version: int | None = None


@dataclass(frozen=True, slots=True)
class PublishedWeights:
    """One version of the weights, which stamps every token that it samples.

    `version` is the step after which they were published. `name` is unique for each version and
    never reused: a sampler knows them by it. `path` is the folder of their files, or their address
    at a service. An adapter is served beside its base; whole weights replace a sampler's own.
    """

    version: int
    name: str
    path: str
    is_adapter: bool = True

    def to_dict(self) -> JsonObject:
        """Return the fields as JSON values, for `from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: JsonObject) -> PublishedWeights:
        """Restore weights from the result of `to_dict`."""
        return cls(**value)


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A tool call as parsed from the model's text; `arguments` is JSON text."""

    tool: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A parsed reply. `malformed` describes the error in a tool call that cannot be parsed."""

    content: str
    thinking: str = ""
    calls: tuple[ParsedCall, ...] = ()
    malformed: str = ""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One turn for a chat policy."""

    key: SampleKey
    messages: Sequence[Message]
    tools: Sequence[ToolSchema]
    sampling: Sampling
    output_schema: JsonSchema | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A chat policy's reply, with its numbers of prompt and sampled tokens."""

    reply: Reply
    finish: Finish
    prompt_tokens: int
    sampled_tokens: int


@dataclass(frozen=True, slots=True)
class BodySpan:
    """The token range that holds the text of one message, without the template around it."""

    message: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids, and the ranges that hold the messages' texts."""

    ids: array[int]
    bodies: tuple[BodySpan, ...] = ()


class Codec(Protocol):
    """Converts between messages and token ids, for one model family."""

    @property
    def keeps_thinking(self) -> bool:
        """Whether later turns see the thinking of earlier ones."""
        ...

    @property
    def end_of_turn(self) -> int:
        """The token that ends a turn without tool calls; in some families, also one with calls."""
        ...

    def encode_prompt(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Encoded:
        """Encode a whole conversation, up to the start of the model's reply."""
        ...

    def is_kept(self, turn: Reply | Message, ids: Sequence[int] = ()) -> bool:
        """Return whether later prompts repeat a turn exactly as sampled. `ids` are its tokens."""
        ...

    def encode_continuation(
        self, messages: Sequence[Message], calls: Sequence[RequestedCall] = ()
    ) -> Encoded:
        """Encode the messages after a sampled turn. `calls` are the tool calls of that turn."""
        ...

    def tokens_in(self, text: str) -> int:
        """Count the tokens of a text."""
        ...

    def beginning(self, text: str, most: int) -> str:
        """Return the beginning of a text, cut to at most `most` tokens."""
        ...

    def encode_call_opening(self, tool: str | None) -> array[int]:
        """Encode the beginning of a forced call: up to the arguments of `tool`, or up to the tool's
        name if it is None."""
        ...

    def encode_reply(self, message: Message) -> array[int]:
        """Encode a turn as if the model had sampled it, including the token that ends it."""
        ...

    def parse(self, ids: array[int], tools: Sequence[ToolSchema] = ()) -> Reply:
        """Parse sampled ids into thinking, text and tool calls. `tools` gives the types of
        arguments in formats that do not write them."""
        ...


@runtime_checkable
class TokenPolicy(Protocol):
    """Samples from token ids.

    If `samples_in_lockstep`, a batch waits for a request of every rollout between its `join` and
    its `leave`, so that timing does not change the batch.
    """

    name: str

    @property
    def codec(self) -> Codec:
        """The codec of the model's family."""
        ...

    @property
    def samples_in_lockstep(self) -> bool:
        """Whether a batch waits until every announced rollout has requested a sample."""
        ...

    def join(self) -> None:
        """Announce a rollout."""
        ...

    def leave(self) -> None:
        """Remove an announced rollout."""
        ...

    async def sample(self, request: SampleRequest) -> Sample:
        """Sample one turn."""
        ...


class VersionedPolicy(TokenPolicy, Protocol):
    """Samples with published versions of the weights, in servers or in a service."""

    @property
    def weights(self) -> PublishedWeights:
        """The weights of rollouts that begin now."""
        ...

    def assigned(
        self, weights: PublishedWeights, rollouts: Iterable[RolloutKey]
    ) -> AbstractContextManager[None]:
        """Return a context in which these rollouts are sampled with these weights, even if newer
        ones are published."""
        ...


@runtime_checkable
class ChatPolicy(Protocol):
    """Answers messages without token ids: for comparison, not for training."""

    name: str

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Return the reply to one turn."""
        ...


Policy = TokenPolicy | ChatPolicy


def is_token_policy(policy: Policy) -> TypeGuard[TokenPolicy]:
    """Return whether a policy samples tokens. Unlike `isinstance` with a protocol, which takes
    80 µs, this is fast enough for every rollout."""
    return hasattr(policy, "sample")


def is_played_in_lockstep(policy: Policy) -> TypeGuard[TokenPolicy]:
    """Return whether this policy's rollouts are played in blocks of fixed composition."""
    return is_token_policy(policy) and policy.samples_in_lockstep
