"""Deadlines of one rollout, paused while it waits for a lockstep batch.

The duration of a batch depends on the machine and on the other rollouts in the batch. If the wait
counted, the speed of the machine would decide which rollouts time out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from sparring.contracts.cases import Case
from sparring.contracts.policies import Reply, SampleKey
from sparring.contracts.rollouts import (
    CallFailure,
    Ending,
    Message,
    RequestedCall,
    Rollout,
    RolloutKey,
    TokenRow,
    TokenUse,
    ToolCall,
)
from sparring.contracts.specs import Limits


class Deadlines:
    """The open timeouts of one rollout, innermost last."""

    def __init__(self) -> None:
        self._open: list[asyncio.Timeout] = []
        self._remaining: dict[asyncio.Timeout, float] = {}  # of those that are suspended
        self._pauses = 0

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """Limit the block to `seconds`, as `asyncio.timeout` does, and yield the timeout. Time
        inside `paused` does not count."""
        async with asyncio.timeout(seconds) as timeout:
            self._open.append(timeout)
            try:
                yield timeout
            finally:
                self._open.remove(timeout)
                self._remaining.pop(timeout, None)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend all open timeouts for the duration of the block. If blocks overlap, because parts
        of the rollout wait at once, the timeouts resume when the last one ends."""
        clock = asyncio.get_running_loop().time
        for timeout in self._open:
            if not timeout.expired() and (when := timeout.when()) is not None:
                self._remaining[timeout] = when - clock()
                timeout.reschedule(None)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                for timeout, remaining in self._remaining.items():
                    if not timeout.expired():
                        timeout.reschedule(clock() + remaining)
                self._remaining.clear()


EPISODE: ContextVar[Episode] = ContextVar("sparring_episode")


class EpisodeOver(Exception):
    """Stops the SDK's run of a rollout whose ending is already recorded."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One model call of a rollout."""

    number: int
    agent: str
    key: SampleKey


class Episode:
    """Messages, calls, token use and ending of one rollout. Not thread-safe: use it from one event
    loop."""

    def __init__(self, key: RolloutKey, case: Case, limits: Limits) -> None:
        self.key = key
        self.case = case
        self.limits = limits
        self.deadlines = Deadlines()
        self.agent = ""
        self.answer = ""
        self.turns = 0  # that were begun
        self._replies = 0
        self.spent = 0
        self.pending_tokens = 0  # upper bound on the tokens of results not yet in a row
        self.open_calls = 0
        self.offers_tools = False  # whether a model call offered tools
        self._prompt_tokens = self._sampled_tokens = 0
        self._messages: list[Message] = []
        self._calls: dict[str, ToolCall] = {}
        self._refusals: dict[str, str] = {}
        self._ending: Ending | None = None
        self._detail = ""

    # ------------------------------------------------------------------ turns

    def begin_turn(self) -> Turn:
        """Start the next turn and return it. Turns are numbered from 0."""
        self.pending_tokens = 0
        turn = Turn(self.turns, self.agent, SampleKey(self.key, self.turns))
        self.turns += 1
        return turn

    def tokens_left(self) -> int:
        """Return the remaining token budget. If it is used up, end the rollout and raise
        EpisodeOver."""
        left = self.limits.completion_tokens - self.spent
        if left <= 0:
            by_tools = self.spent - self._sampled_tokens
            budget = self.limits.completion_tokens
            detail = (
                f"the budget of {budget} tokens is used up, {by_tools} of them not sampled "
                "(tool results, user messages)"
            )
            self.end(Ending.TOKEN_BUDGET, detail)
            raise EpisodeOver
        return left

    def count_tokens(self, prompt: int, sampled: int) -> None:
        """Add the tokens of one model call to the rollout's totals."""
        self._prompt_tokens += prompt
        self._sampled_tokens += sampled

    @property
    def messages(self) -> tuple[Message, ...]:
        """The transcript so far."""
        return tuple(self._messages)

    def add_messages(self, messages: Sequence[Message]) -> None:
        """Append messages that are new to the model. A tool message also sets its call's result."""
        for message in messages:
            self._messages.append(replace(message, agent=self.agent))
            self.note_result(message.call_id, message.content)

    def add_reply(self, reply: Reply, turn: Turn) -> list[RequestedCall]:
        """Record the model's reply and return its calls, with ids that are unique in the
        rollout."""
        self._replies += 1
        calls = [
            RequestedCall(f"call_{turn.number}_{number}", call.tool, call.arguments)
            for number, call in enumerate(reply.calls)
        ]
        for call in calls:
            self._calls[call.id] = ToolCall(call.id, call.tool, call.arguments, agent=turn.agent)
        self._messages.append(
            Message("assistant", reply.content, turn.agent, reply.thinking, tuple(calls))
        )
        if not self.open_calls:
            self.answer = reply.content
        return calls

    # ------------------------------------------------------------------ tool calls

    def tool_of(self, call_id: str) -> str:
        """Return the name of the tool of a call, or an empty string if there is no such call."""
        call = self._calls.get(call_id)
        return call.tool if call else ""

    def refuse_calls(self, calls: Sequence[RequestedCall], reason: str) -> None:
        """Mark these calls as refused: they do not run, and the model reads `reason` as their
        result."""
        for call in calls:
            self._refusals[call.id] = reason
            self.note_failure(call.id, CallFailure.REFUSED)

    def refusal_of(self, call_id: str) -> str | None:
        """Return the reason if a call was refused, else None."""
        return self._refusals.get(call_id)

    @contextmanager
    def nested_call(self) -> Iterator[None]:
        """Mark the block as a nested run of a tool or guardrail. Its replies do not become the
        rollout's answer."""
        self.open_calls += 1
        try:
            yield
        finally:
            self.open_calls -= 1

    def note_result(self, call_id: str, result: str) -> None:
        """Set the result of a call; ignore unknown ids."""
        if (call := self._calls.get(call_id)) and call.result != result:
            self._calls[call_id] = replace(call, result=result)

    def note_failure(self, call_id: str, failure: CallFailure) -> None:
        """Set the failure of a call; ignore unknown ids."""
        if call := self._calls.get(call_id):
            self._calls[call_id] = replace(call, failure=failure)

    # ------------------------------------------------------------------ ending

    @property
    def is_over(self) -> bool:
        """Whether an ending has been recorded."""
        return self._ending is not None

    @property
    def ending(self) -> Ending | None:
        """The recorded ending; None while the rollout runs, and if it ends with an answer."""
        return self._ending

    def end(self, ending: Ending, detail: str = "") -> None:
        """Record the ending. Calls after the first have no effect."""
        if self._ending is None:
            self._ending, self._detail = ending, detail

    def finish(self, rows: Sequence[TokenRow], world: object, output: object) -> Rollout:
        """Return the rollout. Its ending is ANSWERED if none was recorded."""
        ending = self._ending or Ending.ANSWERED
        return Rollout(
            key=self.key,
            case=self.case,
            ending=self._specific_ending(ending),
            detail=self._detail,
            answer=self.answer,
            messages=tuple(self._messages),
            tool_calls=tuple(self._calls.values()),
            rows=tuple(rows),
            turns=self._replies,
            tokens=TokenUse(self._prompt_tokens, self._sampled_tokens),
            world=world,
            output=output,
        )

    def _specific_ending(self, ending: Ending) -> Ending:
        """Return UNKNOWN_TOOL or TOOL_DEADLINE in place of TURN_LIMIT if every call failed in that
        way, else the ending unchanged."""
        failures = {call.failure for call in self._calls.values()}
        if ending is Ending.TURN_LIMIT and failures == {CallFailure.UNKNOWN_TOOL}:
            return Ending.UNKNOWN_TOOL
        if ending is Ending.TURN_LIMIT and failures == {CallFailure.DEADLINE}:
            return Ending.TOOL_DEADLINE
        return ending
