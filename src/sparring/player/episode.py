"""The state of one rollout while it is played."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace

from sparring.contracts.cases import Case
from sparring.contracts.limits import Limits
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
from sparring.player.deadlines import Deadlines

EPISODE: ContextVar[Episode] = ContextVar("sparring_episode")


class EpisodeOver(Exception):
    """Raised through the SDK when a rollout cannot go on; its ending is already noted."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of the model."""

    number: int
    agent: str
    key: SampleKey


class Episode:
    """What has happened so far. One per rollout, touched by one event loop only."""

    def __init__(self, key: RolloutKey, case: Case, limits: Limits) -> None:
        self.key = key
        self.case = case
        self.limits = limits
        self.deadlines = Deadlines()
        self.agent = ""
        self.answer = ""
        self.turns = 0
        self.spent = 0
        self.open_calls = 0
        self._prompt_tokens = self._sampled_tokens = 0
        self._messages: list[Message] = []
        self._calls: dict[str, ToolCall] = {}
        self._ending: Ending | None = None
        self._detail = ""

    # ------------------------------------------------------------------ turns

    def begin_turn(self) -> Turn:
        turn = Turn(self.turns, self.agent, SampleKey(self.key, self.turns))
        self.turns += 1
        return turn

    def tokens_left(self) -> int:
        left = self.limits.completion_tokens - self.spent
        if left <= 0:
            by_tools = self.spent - self._sampled_tokens
            told = f"{self.limits.completion_tokens} tokens are used up, {by_tools} by tool results"
            self.end(Ending.TOKEN_BUDGET, told)
            raise EpisodeOver
        return left

    def count_tokens(self, prompt: int, sampled: int) -> None:
        self._prompt_tokens += prompt
        self._sampled_tokens += sampled

    def hear(self, messages: Sequence[Message]) -> None:
        """Messages that are new to the model."""
        for message in messages:
            self._messages.append(replace(message, agent=self.agent))
            if message.call_id in self._calls:
                call = self._calls[message.call_id]
                self._calls[message.call_id] = replace(call, result=message.content)

    def say(self, reply: Reply, turn: Turn) -> list[RequestedCall]:
        """What the model said; returns its calls with ids that are unique in the rollout."""
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
        call = self._calls.get(call_id)
        return call.tool if call else ""

    def caller_of(self, call_id: str) -> str:
        call = self._calls.get(call_id)
        return call.agent if call else ""

    def arguments_of(self, call_id: str) -> str:
        call = self._calls.get(call_id)
        return call.arguments if call else "{}"

    def note_result(self, call_id: str, result: str) -> None:
        if call := self._calls.get(call_id):
            self._calls[call_id] = replace(call, result=result)

    def note_failure(self, call_id: str, failure: CallFailure) -> None:
        if call := self._calls.get(call_id):
            self._calls[call_id] = replace(call, failure=failure)

    # ------------------------------------------------------------------ ending

    @property
    def is_over(self) -> bool:
        return self._ending is not None

    def end(self, ending: Ending, detail: str = "") -> None:
        """Note why it ended; the first cause stands."""
        if self._ending is None:
            self._ending, self._detail = ending, detail

    def finish(self, rows: Sequence[TokenRow], world: object, output: object) -> Rollout:
        ending = self._ending or Ending.ANSWERED
        return Rollout(
            key=self.key,
            case=self.case,
            ending=self._narrowed(ending),
            detail=self._detail,
            answer=self.answer,
            messages=tuple(self._messages),
            tool_calls=tuple(self._calls.values()),
            rows=tuple(rows),
            turns=self.turns,
            tokens=TokenUse(self._prompt_tokens, self._sampled_tokens),
            world=world,
            output=output,
        )

    def _narrowed(self, ending: Ending) -> Ending:
        """A turn limit reached by calls that all failed alike is named after that failure."""
        failures = {call.failure for call in self._calls.values()}
        if ending is Ending.TURN_LIMIT and failures == {CallFailure.UNKNOWN_TOOL}:
            return Ending.UNKNOWN_TOOL
        if ending is Ending.TURN_LIMIT and failures == {CallFailure.DEADLINE}:
            return Ending.TOOL_DEADLINE
        return ending
