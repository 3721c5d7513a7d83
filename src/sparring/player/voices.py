"""How a turn is spoken: by token ids, with rows to learn from, or by chat, without."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sparring.contracts.policies import (
    ChatPolicy,
    ChatRequest,
    Finish,
    Policy,
    Reply,
    SampleRequest,
    Sampling,
    TokenPolicy,
)
from sparring.contracts.rollouts import Message, TokenRow
from sparring.player.conversation import Item, to_messages, turn_of
from sparring.player.episode import Episode, Turn
from sparring.player.rows import GrowingRow


@dataclass(frozen=True, slots=True)
class Prompt:
    """All that the SDK tells the model in one turn."""

    system: str
    items: Sequence[Item]
    tools: Sequence[Mapping[str, Any]]
    output_schema: Mapping[str, Any] | None

    @property
    def last_own(self) -> int:
        """Where our own last item stands; -1 where the conversation is new to us."""
        for number in range(len(self.items) - 1, -1, -1):
            if turn_of(self.items[number]) is not None:
                return number
        return -1


@dataclass(frozen=True, slots=True)
class Spoken:
    reply: Reply
    finish: Finish


class Voice(Protocol):
    def rows(self) -> list[TokenRow]: ...

    async def speak(self, turn: Turn, prompt: Prompt) -> Spoken: ...


def voice_for(policy: Policy, episode: Episode, temperature: float) -> Voice:
    if isinstance(policy, TokenPolicy):
        return TokenVoice(policy, episode, temperature)
    return ChatVoice(policy, episode, temperature)


class TokenVoice:
    """Keeps the rows of one rollout and continues the one that a turn belongs to.

    A turn that does not simply add to a row it knows (another agent, a history that was
    filtered or summarised, instructions that changed) starts a row of its own.
    """

    def __init__(self, policy: TokenPolicy, episode: Episode, temperature: float) -> None:
        self._policy = policy
        self._episode = episode
        self._temperature = temperature
        self._rows: list[GrowingRow] = []

    def rows(self) -> list[TokenRow]:
        """Rows with something to learn from; one that was never answered has nothing."""
        return [row.finished() for row in self._rows if row.is_answered]

    async def speak(self, turn: Turn, prompt: Prompt) -> Spoken:
        episode = self._episode
        episode.tokens_left()  # before a long result is tokenised for nothing
        row = self._row(turn, prompt)
        sampling = Sampling(self._temperature, episode.tokens_left())
        request = SampleRequest(turn.key, row.ids, sampling)
        if self._policy.plays_in_waves:
            with episode.deadlines.paused():
                sample = await self._policy.sample(request)
        else:
            sample = await self._policy.sample(request)
        episode.count_tokens(len(row.ids), len(sample.ids))
        row.add_sample(sample, prompt.items, turn.number)
        episode.spent += len(sample.ids)
        return Spoken(self._policy.codec.parse(sample.ids), sample.finish)

    def _row(self, turn: Turn, prompt: Prompt) -> GrowingRow:
        tools, last, episode = json.dumps(prompt.tools), prompt.last_own, self._episode
        system = system_of(prompt)
        for row in reversed(self._rows):
            if last >= 0 and row.continues(system, tools, prompt.items, last):
                messages = to_messages(prompt.items[last + 1 :])
                encoded = self._policy.codec.encode_continuation(messages)
                names = [episode.tool_of(message.call_id) for message in messages]
                row.observe(encoded, messages, names)
                episode.spent += len(encoded.ids)
                return row
        messages = to_messages(prompt.items)
        if system:
            messages = [Message("system", system), *messages]
        encoded = self._policy.codec.encode_prompt(messages, prompt.tools)
        row = GrowingRow(turn.agent, system, tools, encoded.ids)
        self._rows.append(row)
        return row


class ChatVoice:
    """Asks a chat policy; there are no rows."""

    def __init__(self, policy: ChatPolicy, episode: Episode, temperature: float) -> None:
        self._policy = policy
        self._episode = episode
        self._temperature = temperature

    def rows(self) -> list[TokenRow]:
        return []

    async def speak(self, turn: Turn, prompt: Prompt) -> Spoken:
        episode = self._episode
        messages = to_messages(prompt.items)
        if prompt.system:
            messages = [Message("system", prompt.system), *messages]
        sampling = Sampling(self._temperature, episode.tokens_left())
        answer = await self._policy.reply(
            ChatRequest(turn.key, messages, prompt.tools, sampling, prompt.output_schema)
        )
        episode.count_tokens(answer.prompt_tokens, answer.sampled_tokens)
        episode.spent += answer.sampled_tokens
        return Spoken(answer.reply, answer.finish)


def system_of(prompt: Prompt) -> str:
    """A sampled model is not held to a schema by its decoder, so it has to be told."""
    if prompt.output_schema is None:
        return prompt.system
    schema = json.dumps(prompt.output_schema, sort_keys=True)
    told = f"Give your final answer as JSON that fits this schema:\n{schema}"
    return f"{prompt.system}\n\n{told}" if prompt.system else told
