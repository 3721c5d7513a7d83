"""Reward functions in TRL's form: they return one number per completion of a batch.

They can be used with measures or instead of them. Each number becomes a verdict on its rollout
and need not lie between 0 and 1. `None` or NaN leaves the rollout unscored.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sparring.contracts.chat import ChatMessage, chat_call
from sparring.contracts.errors import MeasureError
from sparring.contracts.rollouts import Message, Rollout
from sparring.contracts.verdicts import Judgement, Outcome, Verdict, cannot_tell
from sparring.threads import DaemonThreads
from sparring.tracebacks import error_with_line

Batch = Callable[..., Any]
_ROLLOUTS_PER_DEADLINE = 16


@dataclass(frozen=True, slots=True)
class RewardFunction:
    """A weighted `function(prompts, completions, completion_ids, **columns)`, sync or async."""

    name: str
    function: Batch
    weight: float = 1.0

    @classmethod
    def of(cls, function: Batch, weights: Mapping[str, float]) -> RewardFunction:
        """Wrap a function under its own name; raises MeasureError if it is not callable."""
        if not callable(function):
            raise MeasureError(
                f"{function!r} is not a reward function; pass a function of (prompts, completions, "
                "**columns) that returns one number per completion"
            )
        name = getattr(function, "__name__", type(function).__name__)
        return cls(name, function, weights.get(name, 1.0))

    async def judge(
        self, rollouts: Sequence[Rollout], seconds: float, threads: DaemonThreads
    ) -> list[Judgement]:
        """Return one judgement per rollout; if the function fails, all rollouts stay unscored.

        The deadline is `seconds` for up to 16 rollouts, and proportionally longer for more.
        """
        extras: list[dict[str, str]] = [{} for _ in rollouts]
        seconds *= max(1.0, len(rollouts) / _ROLLOUTS_PER_DEADLINE)
        try:
            async with asyncio.timeout(seconds) as deadline:
                rewards = await self._call(rollouts, extras, threads)
            verdicts = [self._verdict(reward, extras[n]) for n, reward in enumerate(rewards)]
            causes: list[str | None] = [None] * len(verdicts)
        except (Exception, SystemExit) as error:  # user code may raise anything
            cause = error_with_line(error)
            if deadline.expired():
                cause = f"no rewards within {seconds:g} s"
            verdicts = [cannot_tell(f"the reward function broke: {cause}")] * len(rollouts)
            causes = [cause] * len(rollouts)
        return [
            Judgement(self.name, verdict, self.weight, cause=cause)
            for verdict, cause in zip(verdicts, causes, strict=True)
        ]

    async def _call(
        self, rollouts: Sequence[Rollout], extras: list[dict[str, str]], threads: DaemonThreads
    ) -> Sequence[Any]:
        call = partial(
            self.function,
            **_columns(rollouts),
            log_extra=partial(_log_extra, extras),
            log_metric=partial(_log_metric, extras),
        )
        if inspect.iscoroutinefunction(self.function):
            rewards = await call()
        else:
            rewards = await asyncio.get_running_loop().run_in_executor(threads, call)
        if len(rewards) != len(rollouts):
            raise MeasureError(
                f"{self.name} returned {len(rewards)} rewards for {len(rollouts)} completions"
            )
        return list(rewards)

    def _verdict(self, reward: Any, extras: Mapping[str, str]) -> Verdict:
        notes = "".join(f"; {column}: {value}" for column, value in extras.items())
        if reward is None or math.isnan(reward):
            return cannot_tell(f"{self.name} returned no reward{notes}")
        if not math.isfinite(reward):
            raise MeasureError(f"{self.name} returned {reward!r}; a reward must be finite")
        return Verdict(
            Outcome.SCORED, f"{self.name} returned {float(reward):g}{notes}", float(reward)
        )


def _columns(rollouts: Sequence[Rollout]) -> dict[str, list[Any]]:
    """Return TRL's arguments with one value per completion, plus `expected` and `rollouts`."""
    columns: dict[str, list[Any]] = {
        name: [rollout.case.fields.get(name) for rollout in rollouts]
        for name in dict.fromkeys(name for rollout in rollouts for name in rollout.case.fields)
    }
    starts = [_completion_start(rollout) for rollout in rollouts]
    columns["expected"] = [rollout.expected for rollout in rollouts]
    columns["rollouts"] = list(rollouts)
    columns["prompts"] = [
        [_chat_message(message) for message in rollout.messages[:start]]
        for rollout, start in zip(rollouts, starts, strict=True)
    ]
    columns["completions"] = [
        [_chat_message(message) for message in rollout.messages[start:]]
        for rollout, start in zip(rollouts, starts, strict=True)
    ]
    columns["completion_ids"] = [
        rollout.rows[0].ids[rollout.rows[0].spans[0].length :].tolist() if rollout.rows else []
        for rollout in rollouts
    ]
    return columns


def _completion_start(rollout: Rollout) -> int:
    """Return the index of the first sampled message; examples before it belong to the prompt."""
    assistant = [n for n, message in enumerate(rollout.messages) if message.role == "assistant"]
    own = assistant[-rollout.turns :] if rollout.turns else []
    return own[0] if own else len(rollout.messages)


def _chat_message(message: Message) -> ChatMessage:
    chat = ChatMessage(role=message.role, content=message.content)
    if message.calls:
        calls = [chat_call(call.tool, _parsed(call.arguments)) for call in message.calls]
        chat["tool_calls"] = calls
    return chat


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _log_extra(extras: list[dict[str, str]], column: str, values: Sequence[Any]) -> None:
    """Stand in for TRL's `log_extra`: add a column of values to the reasons of the verdicts."""
    for extra, value in zip(extras, values, strict=False):
        extra[column] = str(value)


def _log_metric(extras: list[dict[str, str]], name: str, value: float) -> None:
    """Stand in for TRL's `log_metric`: add a value of the batch to the reason of every verdict."""
    _log_extra(extras, name, [value] * len(extras))
