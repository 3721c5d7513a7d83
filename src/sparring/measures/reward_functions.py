"""Reward functions in TRL's form: a batch of completions in, one number each out.

They stand beside measures or instead of them. A number is a verdict like any other, kept
with the rollout; it need not lie between 0 and 1. `None` leaves the rollout unscored.
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

from sparring.contracts.errors import MeasureError
from sparring.contracts.rollouts import Message, Rollout
from sparring.contracts.verdicts import Judgement, Outcome, Verdict, cannot_tell
from sparring.threads import DaemonThreads

Batch = Callable[..., Any]
_ROLLOUTS_PER_DEADLINE = 16


@dataclass(frozen=True, slots=True)
class RewardFunction:
    """`function(prompts, completions, completion_ids, **columns)`, plain or async."""

    name: str
    function: Batch
    weight: float = 1.0

    @classmethod
    def of(cls, function: Batch, weights: Mapping[str, float]) -> RewardFunction:
        if not callable(function):
            raise MeasureError(
                f"{function!r} is no reward function; give a function of (prompts, completions, "
                "**columns) that returns one number per completion"
            )
        name = getattr(function, "__name__", type(function).__name__)
        return cls(name, function, weights.get(name, 1.0))

    async def judge(
        self, rollouts: Sequence[Rollout], seconds: float, threads: DaemonThreads
    ) -> list[Judgement]:
        """One judgement per rollout; a function that breaks leaves all of them unscored."""
        remarks: list[dict[str, str]] = [{} for _ in rollouts]
        seconds *= max(1.0, len(rollouts) / _ROLLOUTS_PER_DEADLINE)  # one call judges them all
        try:
            async with asyncio.timeout(seconds):
                rewards = await self._call(rollouts, remarks, threads)
            verdicts = [self._verdict(reward, remarks[n]) for n, reward in enumerate(rewards)]
            causes: list[str | None] = [None] * len(verdicts)
        except Exception as error:  # user code: whatever it raises is its cause
            cause = f"{type(error).__name__}: {error}"
            if isinstance(error, TimeoutError):
                cause = f"no rewards within {seconds:g} s"
            verdicts = [cannot_tell(f"the reward function broke: {cause}")] * len(rollouts)
            causes = [cause] * len(rollouts)
        return [
            Judgement(self.name, verdict, self.weight, cause=cause)
            for verdict, cause in zip(verdicts, causes, strict=True)
        ]

    async def _call(
        self, rollouts: Sequence[Rollout], remarks: list[dict[str, str]], threads: DaemonThreads
    ) -> Sequence[Any]:
        call = partial(self.function, **_columns(rollouts), log_extra=partial(_remark, remarks))
        if inspect.iscoroutinefunction(self.function):
            rewards = await call()
        else:
            rewards = await asyncio.get_running_loop().run_in_executor(threads, call)
        if len(rewards) != len(rollouts):
            raise MeasureError(
                f"{self.name} returned {len(rewards)} rewards for {len(rollouts)} completions"
            )
        return list(rewards)

    def _verdict(self, reward: Any, remarks: Mapping[str, str]) -> Verdict:
        said = "".join(f"; {column}: {value}" for column, value in remarks.items())
        if reward is None or math.isnan(reward):
            return cannot_tell(f"{self.name} gave no reward{said}")
        if not math.isfinite(reward):
            raise MeasureError(f"{self.name} gave {reward!r}; a reward must be finite")
        return Verdict(Outcome.SCORED, f"{self.name} gave {float(reward):g}{said}", float(reward))


def _columns(rollouts: Sequence[Rollout]) -> dict[str, list[Any]]:
    """What TRL passes to a reward function: conversations, ids, and the data's own columns."""
    columns: dict[str, list[Any]] = {
        name: [rollout.case.fields.get(name) for rollout in rollouts]
        for name in dict.fromkeys(name for each in rollouts for name in each.case.fields)
    }
    splits = [_answered_from(rollout) for rollout in rollouts]
    columns["expected"] = [rollout.expected for rollout in rollouts]
    columns["rollouts"] = list(rollouts)
    columns["prompts"] = [
        [_chat(message) for message in rollout.messages[:start]]
        for rollout, start in zip(rollouts, splits, strict=True)
    ]
    columns["completions"] = [
        [_chat(message) for message in rollout.messages[start:]]
        for rollout, start in zip(rollouts, splits, strict=True)
    ]
    columns["completion_ids"] = [
        rollout.rows[0].ids[rollout.rows[0].spans[0].length :].tolist() if rollout.rows else []
        for rollout in rollouts
    ]
    return columns


def _answered_from(rollout: Rollout) -> int:
    """Where the model's own first message stands; worked examples before it are prompt."""
    said = [n for n, message in enumerate(rollout.messages) if message.role == "assistant"]
    own = said[-rollout.turns :] if rollout.turns else []
    return own[0] if own else len(rollout.messages)


def _chat(message: Message) -> dict[str, Any]:
    chat: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        chat["tool_calls"] = [
            {
                "type": "function",
                "function": {"name": call.tool, "arguments": _read(call.arguments)},
            }
            for call in message.calls
        ]
    return chat


def _read(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _remark(remarks: list[dict[str, str]], column: str, values: Sequence[Any]) -> None:
    """TRL's `log_extra`: a column of remarks, which end up in the reasons."""
    for remark, value in zip(remarks, values, strict=False):
        remark[column] = str(value)
