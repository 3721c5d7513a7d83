"""Turns a rollout into rows for an engine, and validates them.

If a rollout must not be learned from, its rows keep their tokens, their masks are all zeros, and
its reward is None. It then affects neither the policy's loss, nor the statistics of its group, nor
the token count that normalises the loss. The tool results of a rollout that nothing could score are
not learned from either: a failure of the infrastructure teaches nothing.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass

from sparring.contracts.errors import Untrainable
from sparring.contracts.rollouts import CallFailure, ResultBody, Rollout, TokenKind, TokenRow

_ROUNDING = 1e-4
_UNKNOWN_TOOL = "(unknown)"


@dataclass(frozen=True, slots=True)
class LearningRow:
    """One row of a rollout as an engine receives it.

    `mask` and `logprobs` have one entry per token of `completion`. `bodies` are the positions of
    tool results in `completion`. `place` is the index of the row in its rollout; None for a row
    from `masked_row`.
    """

    prompt: array[int]
    completion: array[int]
    mask: bytes
    logprobs: array[float]
    bodies: tuple[ResultBody, ...] = ()
    place: int | None = None

    @property
    def observed_tokens(self) -> int:
        """The number of tokens of tool results."""
        return sum(body.stop - body.start for body in self.bodies)


@dataclass(frozen=True, slots=True)
class LearningRollout:
    """The rows of one rollout, at least one, and its reward."""

    rows: tuple[LearningRow, ...]
    reward: float | None

    @property
    def observed_tokens(self) -> int:
        """The number of tokens of tool results in all rows."""
        return sum(row.observed_tokens for row in self.rows)


@dataclass(frozen=True, slots=True)
class RowRules:
    """The rules by which a rollout becomes rows.

    `agents` are the agents that are trained; None means all. A tool result after the last sampled
    token is kept up to token `keeps_results` of the completion; 0 removes it. `one_row_reason` is
    why a rollout may have only one row; empty if it may have several.
    """

    end_of_turn: int
    vocabulary: int
    masks_truncated: bool = False
    keeps_results: int = 0
    agents: Collection[str] | None = None
    one_row_reason: str = ""


def masked_row(end_of_turn: int) -> LearningRow:
    """Return a row with one completion token that is masked, so that it changes no weights."""
    token = array("i", [end_of_turn])
    return LearningRow(token, token, b"\x00", array("f", [0.0]))


def learning_rollout(
    rollout: Rollout,
    rules: RowRules,
    *,
    version: int | None = None,
    is_demonstrated: bool = False,
) -> LearningRollout:
    """Return the rows of a rollout and its reward.

    Discarded rows and the rows of agents that are not trained are left out. All rows are masked if
    the rollout has no reward (a demonstration needs none), if it is truncated and `rules` mask
    truncated rollouts, or if weights other than `version` sampled one of its tokens. Raises
    Untrainable if a row that is learned from is invalid, or if there are several rows and `rules`
    allow only one.
    """
    has_reward = is_demonstrated or rollout.reward is not None
    is_learned_from = has_reward and not (rules.masks_truncated and rollout.is_truncated)
    is_learned_from = is_learned_from and not other_versions(rollout, version)
    rows = {
        place: row
        for place, row in enumerate(rollout.rows)
        if not row.is_discarded and (rules.agents is None or row.agent in rules.agents)
    }
    if len(rows) > 1 and rules.one_row_reason:
        agents = ", ".join(dict.fromkeys(row.agent for row in rows.values()))
        raise Untrainable(
            f"rollout {rollout.id} has {len(rows)} rows (agents: {agents}): {rules.one_row_reason}"
        )
    if not is_learned_from:
        rows = {place: row for place, row in rows.items() if not _problem(row, rules.vocabulary)}
    learned = tuple(
        _learning_row(
            row,
            place,
            rollout,
            rules,
            is_learned_from=is_learned_from,
            has_results=has_reward,  # a failure of the infrastructure may have written them
        )
        for place, row in rows.items()
    )
    return LearningRollout(
        learned or (masked_row(rules.end_of_turn),), rollout.reward if is_learned_from else None
    )


def other_versions(rollout: Rollout, version: int | None) -> list[int]:
    """Return the versions of the weights that sampled tokens of the rollout, except `version`;
    empty if `version` is None."""
    if version is None:
        return []
    sampled = {each for row in rollout.rows for each, _ in row.versions}
    return sorted(sampled - {version})


def _learning_row(
    row: TokenRow,
    place: int,
    rollout: Rollout,
    rules: RowRules,
    *,
    is_learned_from: bool,
    has_results: bool,
) -> LearningRow:
    check_row(row, rules.vocabulary, rollout.id)
    start = row.spans[0].length
    full_mask = row.mask()[start:]
    sampled_end = full_mask.rindex(1) + 1
    last_body = max((body.stop - start for body in row.bodies), default=0)
    mask = full_mask[: max(sampled_end, min(last_body, rules.keeps_results))]
    return LearningRow(
        prompt=row.ids[:start],
        completion=row.ids[start : start + len(mask)],
        mask=mask if is_learned_from else bytes(len(mask)),
        logprobs=_spread(row.logprobs, mask),
        bodies=_bodies(row, start, len(mask), _known_tools(rollout)) if has_results else (),
        place=place,
    )


def _bodies(row: TokenRow, start: int, length: int, known: Set[str]) -> tuple[ResultBody, ...]:
    """Return the positions of tool results in the completion.

    Unknown tools share one name, because metrics are by tool and a model can invent any name.
    """
    return tuple(
        ResultBody(
            body.tool if body.tool in known else _UNKNOWN_TOOL,
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
    """Raise Untrainable if the spans, token ids or log-probabilities of a row are invalid."""
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
        return "it has log-probabilities that are not finite or are above zero"
    return ""


def _spread(logprobs: Sequence[float], mask: bytes) -> array[float]:
    """Return one log-probability per token of the completion; 0 for tokens not sampled."""
    remaining = iter(logprobs)
    return array("f", [next(remaining) if is_sampled else 0.0 for is_sampled in mask])
