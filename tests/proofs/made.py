"""Rollouts made up for tests of statistics."""

from __future__ import annotations

from typing import Any

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import Ending, Message, Rollout, RolloutKey
from sparring.contracts.verdicts import Judgement, cannot_tell, scored


def answered(
    case: str,
    reward: float | None,
    index: int = 0,
    *,
    is_truncated: bool = False,
    answer: str = "an answer",
    guards: dict[str, float] | None = None,
    **more: Any,
) -> Rollout:
    """A rollout with this reward; `guards` are measures that were judged and not rewarded."""
    verdict = cannot_tell("no idea") if reward is None else scored(reward, "so much")
    judgements = [Judgement("right", verdict, 1.0)]
    for name, score in (guards or {}).items():
        judgements.append(Judgement(name, scored(score, "so much"), 0.0))
    return Rollout(
        RolloutKey(0, 0, case, index),
        Case(case, f"question {case}"),
        Ending.TOKEN_BUDGET if is_truncated else Ending.ANSWERED,
        answer,
        messages=(Message("user", f"question {case}"), Message("assistant", answer)),
        judgements=tuple(judgements),
        reward=reward,
        **more,
    )
