"""Reward functions in TRL's form: what they return, and what happens when they break."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sparring.contracts.rollouts import Message, RequestedCall
from sparring.contracts.verdicts import Judgement
from sparring.measures.reward_functions import RewardFunction
from sparring.testing import rollout
from sparring.threads import DaemonThreads


def judged(function: Any, seconds: float = 5.0) -> list[Judgement]:
    made = RewardFunction(function.__name__, function, 1.0)
    rollouts = [rollout("one"), rollout("two")]
    return asyncio.run(made.judge(rollouts, seconds, DaemonThreads(2)))


def lengths(completions: Any, **columns: Any) -> list[float]:
    return [float(len(each[0]["content"])) for each in completions]


async def lengths_later(completions: Any, **columns: Any) -> list[float]:
    return lengths(completions)


@pytest.mark.parametrize("function", [lengths, lengths_later])
def test_plain_and_async_functions_give_one_reward_each(function: Any) -> None:
    assert [each.verdict.score for each in judged(function)] == [3.0, 3.0]


def test_a_metric_of_the_batch_is_in_every_reason() -> None:
    def measured(completions: Any, log_metric: Any, **_: Any) -> list[float]:
        log_metric("accuracy", 0.5)
        return [1.0] * len(completions)

    reasons = [each.verdict.reason for each in judged(measured)]
    assert reasons == ["measured returned 1; accuracy: 0.5"] * 2


def test_arguments_that_are_nested_too_deeply_stay_text() -> None:
    deep = "[" * 200_000
    seen: list[Any] = []

    def looks(completions: Any, **columns: Any) -> list[float]:
        seen.append(completions[0][0]["tool_calls"][0]["function"]["arguments"])
        return [1.0]

    call = RequestedCall("1", "add", deep)
    played = replace(
        rollout("one"), messages=(Message("user", "q"), Message("assistant", "", calls=(call,)))
    )
    made = RewardFunction("looks", looks, 1.0)
    (judgement,) = asyncio.run(made.judge([played], 5.0, DaemonThreads(2)))
    assert (judgement.verdict.score, seen) == (1.0, [deep])


def one_too_few(completions: Any, **columns: Any) -> list[float]:
    return [1.0]


async def leaves(completions: Any, **columns: Any) -> list[float]:
    raise SystemExit(2)


async def times_out_itself(completions: Any, **columns: Any) -> list[float]:
    raise TimeoutError("the database")


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        (one_too_few, "returned 1 rewards for 2 completions"),
        (leaves, "SystemExit"),
        (times_out_itself, "TimeoutError: the database"),
    ],
)
def test_a_reward_function_that_raises_leaves_all_rollouts_unscored(
    function: Any, cause: str
) -> None:
    for judgement in judged(function):
        assert judgement.verdict.score is None
        assert cause in (judgement.cause or "")


def test_a_reward_function_that_takes_too_long_fails_with_its_deadline() -> None:
    async def sleeps(completions: Any, **columns: Any) -> list[float]:
        await asyncio.sleep(60)
        return []

    assert "no rewards within" in (judged(sleeps, seconds=0.05)[0].cause or "")
