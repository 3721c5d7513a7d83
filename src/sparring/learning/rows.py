"""From a rollout to the row that is learned from, checked.

A row that must not teach keeps its tokens and gets an all-zero mask and no reward: it then
moves neither the policy, nor the statistics of its group, nor the count of tokens that
normalises the loss.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence, Set
from dataclasses import dataclass

from sparring.contracts.errors import Untrainable
from sparring.contracts.rollouts import CallFailure, ResultBody, Rollout, TokenKind, TokenRow

_ROUNDING = 1e-4
_MADE_UP = "(unknown)"


@dataclass(frozen=True, slots=True)
class LearningRow:
    """What an engine gets of a rollout. `mask` and `logprobs` run along `completion`, in which
    `bodies` are the texts of tool results."""

    prompt: array[int]
    completion: array[int]
    mask: bytes
    logprobs: array[float]
    reward: float | None
    bodies: tuple[ResultBody, ...] = ()

    @property
    def observed_tokens(self) -> int:
        return sum(body.stop - body.start for body in self.bodies)


def learning_row(
    rollout: Rollout,
    *,
    end_of_turn: int,
    vocabulary: int,
    masks_truncated: bool,
    keeps_results: int = 0,
    is_demonstrated: bool = False,
) -> LearningRow:
    """The row of one rollout; refused where it has several, or where a row is not sound.

    A result that nobody answered teaches a policy nothing and is cut off; where results are
    learned, too, it is kept up to the `keeps_results`-th token. A demonstration needs no reward.
    """
    row = _only_row(rollout)
    has_reward = is_demonstrated or rollout.reward is not None
    teaches = has_reward and not (masks_truncated and rollout.is_truncated)
    if row is None or (not teaches and _problem(row, vocabulary)):
        nothing = array("i", [end_of_turn])
        return LearningRow(nothing, nothing, b"\x00", array("f", [0.0]), None)
    check_row(row, vocabulary, rollout.id)
    start = row.spans[0].length
    whole = row.mask()[start:]
    answered = whole.rindex(1) + 1
    last_body = max((body.stop - start for body in row.bodies), default=0)
    mask = whole[: max(answered, min(last_body, keeps_results))]
    return LearningRow(
        prompt=row.ids[:start],
        completion=row.ids[start : start + len(mask)],
        mask=mask if teaches else bytes(len(mask)),
        logprobs=_spread(row.logprobs, mask),
        reward=rollout.reward if teaches else None,
        bodies=_bodies(row, start, len(mask), _known_tools(rollout)),
    )


def _bodies(row: TokenRow, start: int, length: int, known: Set[str]) -> tuple[ResultBody, ...]:
    """Where tool results lie in the completion. Names that the model made up share one: figures
    are kept by tool, and a model can make up any number of them."""
    return tuple(
        ResultBody(
            body.tool if body.tool in known else _MADE_UP,
            body.start - start,
            min(body.stop - start, length),
        )
        for body in row.bodies
        if start <= body.start < start + length
    )


def _known_tools(rollout: Rollout) -> Set[str]:
    unknown = CallFailure.UNKNOWN_TOOL
    return {call.tool for call in rollout.tool_calls if call.failure is not unknown}


def check_row(row: TokenRow, vocabulary: int, where: str) -> None:
    """Refuse a row that cannot be what a model sampled, whoever made it."""
    if problem := _problem(row, vocabulary):
        raise Untrainable(f"rollout {where} cannot be learned from: {problem}")


def _problem(row: TokenRow, vocabulary: int) -> str:
    if not row.spans or row.spans[0].kind is not TokenKind.PROMPT or not row.spans[0].length:
        return "its row does not begin with a prompt"
    if sum(span.length for span in row.spans) != len(row.ids):
        return f"its spans do not add up to its {len(row.ids)} tokens"
    sampled = sum(span.length for span in row.spans if span.kind is TokenKind.SAMPLED)
    if not sampled:
        return "none of its tokens was sampled"
    if sampled != len(row.logprobs):
        return f"it has {sampled} sampled tokens and {len(row.logprobs)} log-probabilities"
    if min(row.ids) < 0 or max(row.ids) >= vocabulary:
        return f"it has token ids outside of the vocabulary of {vocabulary}"
    if not all(math.isfinite(value) and value <= _ROUNDING for value in row.logprobs):
        return "it has log-probabilities that are not finite, or above zero"
    return ""


def _only_row(rollout: Rollout) -> TokenRow | None:
    if len(rollout.rows) > 1:
        agents = ", ".join(dict.fromkeys(row.agent for row in rollout.rows))
        raise Untrainable(
            f"rollout {rollout.id} has {len(rollout.rows)} rows (of {agents}), and learning takes "
            "one: train an agent without handoffs, agents as tools and history filters, and with "
            "instructions and tools that stay the same within a rollout"
        )
    return rollout.rows[0] if rollout.rows else None


def _spread(logprobs: Sequence[float], mask: bytes) -> array[float]:
    """One number per token of the completion, 0 where nothing was sampled."""
    given = iter(logprobs)
    return array("f", [next(given) if sampled else 0.0 for sampled in mask])
