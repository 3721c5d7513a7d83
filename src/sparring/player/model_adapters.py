"""Model adapters: token sampling, which records training rows, and chat, which does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from agents import ModelSettings, Usage

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
from sparring.player.conversation import to_messages
from sparring.player.episode import Episode, Turn
from sparring.player.model_settings import forced_opening, sampling_for
from sparring.player.prompts import Prompt
from sparring.player.rows import GrowingRow, find_continued_row


@dataclass(frozen=True, slots=True)
class AdapterReply:
    """The reply to one model call. `note_reply` takes the reply as a message and the turn's number,
    and records them in the turn's row."""

    reply: Reply
    finish: Finish
    prompt_tokens: int
    tokens: int
    note_reply: Callable[[Message, int], None] = lambda _reply, _turn: None

    @property
    def usage(self) -> Usage:
        """The token counts in the SDK's form."""
        return Usage(
            requests=1,
            input_tokens=self.prompt_tokens,
            output_tokens=self.tokens,
            total_tokens=self.prompt_tokens + self.tokens,
        )


class ModelAdapter(Protocol):
    """Calls a policy for the turns of one rollout."""

    def rows(self) -> list[TokenRow]:
        """Return the rows to train on."""
        ...

    def nested(self) -> AbstractContextManager[None]:
        """Return a context manager to execute one nested run in."""
        ...

    async def respond(self, turn: Turn, prompt: Prompt, settings: ModelSettings) -> AdapterReply:
        """Call the policy for one turn."""
        ...


def adapter_for(policy: Policy, episode: Episode, temperature: float) -> ModelAdapter:
    """Return a TokenAdapter for a token policy, else a ChatAdapter."""
    if isinstance(policy, TokenPolicy):
        return TokenAdapter(policy, episode, temperature)
    return ChatAdapter(policy, episode, temperature)


@dataclass(slots=True, eq=False)
class _RunRows:
    """The last row of one SDK run, and the row that a nested run was called from."""

    caller: GrowingRow | None = None
    last: GrowingRow | None = None


_NESTED_RUN: ContextVar[_RunRows | None] = ContextVar("sparring_nested_run", default=None)


class TokenAdapter:
    """Samples tokens and owns the rows of one rollout.

    A turn whose prompt does not extend the conversation of an existing row (another agent, a
    filtered or summarised history, changed instructions or tools) starts a new row.
    """

    def __init__(self, policy: TokenPolicy, episode: Episode, temperature: float) -> None:
        self._policy = policy
        self._episode = episode
        self._temperature = temperature
        self._rows: list[GrowingRow] = []
        self._outer_run = _RunRows()

    def rows(self) -> list[TokenRow]:
        """Return the rows that contain sampled tokens."""
        answered = [row for row in self._rows if row.is_answered]
        places = {id(row): place for place, row in enumerate(answered)}
        return [row.finished(places.get(id(row.parent))) for row in answered]

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Record the current row as the caller of the nested run inside the block."""
        token = _NESTED_RUN.set(_RunRows(caller=self._run.last))
        try:
            yield
        finally:
            _NESTED_RUN.reset(token)

    @property
    def _run(self) -> _RunRows:
        return _NESTED_RUN.get() or self._outer_run

    async def respond(self, turn: Turn, prompt: Prompt, settings: ModelSettings) -> AdapterReply:
        """Append the new messages to the row that the turn continues, or start a row; sample the
        reply."""
        episode, codec = self._episode, self._policy.codec
        episode.tokens_left()  # ends the rollout before a long result is tokenised
        row = self._row(turn, prompt)
        opening = forced_opening(settings, prompt, codec)
        if opening:
            row.force(opening)
            episode.spent += len(opening)
        sampling = sampling_for(settings, Sampling(self._temperature, episode.tokens_left()))
        request = SampleRequest(turn.key, row.ids, sampling)
        if self._policy.samples_in_lockstep:
            with episode.deadlines.paused():
                sample = await self._policy.sample(request)
        else:
            sample = await self._policy.sample(request)
        prompt_tokens = len(row.ids)
        episode.count_tokens(prompt_tokens, len(sample.ids))
        row.add_sample(sample)
        episode.spent += len(sample.ids)
        reply = codec.parse(opening + sample.ids, prompt.tools)
        if not codec.is_kept(reply, sample.ids):
            row.close()
        note_reply = partial(row.note_reply, prompt.items)
        return AdapterReply(reply, sample.finish, prompt_tokens, len(sample.ids), note_reply)

    def _row(self, turn: Turn, prompt: Prompt) -> GrowingRow:
        row, run = find_continued_row(self._rows, prompt), self._run
        if row is None:
            row = GrowingRow(turn.agent, prompt, self._policy.codec)
            row.follow(run.last, run.caller)
            self._rows.append(row)
        else:
            self._episode.spent += row.observe(prompt, self._policy.codec, self._episode.tool_of)
        run.last = row
        return row


class ChatAdapter:
    """Calls a chat policy, which returns text without token ids, so there are no rows."""

    def __init__(self, policy: ChatPolicy, episode: Episode, temperature: float) -> None:
        self._policy = policy
        self._episode = episode
        self._temperature = temperature

    def rows(self) -> list[TokenRow]:
        """Return an empty list."""
        return []

    def nested(self) -> AbstractContextManager[None]:
        """Return a context manager that does nothing."""
        return nullcontext()

    async def respond(self, turn: Turn, prompt: Prompt, settings: ModelSettings) -> AdapterReply:
        """Send the conversation to the policy and return its reply."""
        episode = self._episode
        messages = to_messages(prompt.items)
        if prompt.system:
            messages = [Message("system", prompt.system), *messages]
        sampling = sampling_for(settings, Sampling(self._temperature, episode.tokens_left()))
        answer = await self._policy.reply(
            ChatRequest(
                turn.key,
                messages,
                prompt.tools,
                sampling,
                prompt.output_schema,
                settings.tool_choice if isinstance(settings.tool_choice, str) else None,
                settings.parallel_tool_calls,
            )
        )
        episode.count_tokens(answer.prompt_tokens, answer.sampled_tokens)
        episode.spent += answer.sampled_tokens
        return AdapterReply(
            answer.reply, answer.finish, answer.prompt_tokens, answer.sampled_tokens
        )
