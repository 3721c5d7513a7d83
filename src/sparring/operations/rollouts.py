"""Reading rollouts back, by range."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from sparring.contracts.specs import Frozen
from sparring.operations.operation import Caller, Role, operation
from sparring.run_folder.rollout_log import GangLog
from sparring.runs.finding import find_run


class ListRollouts(Frozen):
    run: str
    start: int = Field(default=0, ge=0)
    count: int = Field(default=20, ge=1, le=1000)


class RolloutLine(Frozen):
    id: str
    ending: str
    reward: float | None
    tool_calls: int
    sampled_tokens: int
    seconds: float
    answer: str
    reason: str


class RolloutPage(Frozen):
    run: str
    total: int
    start: int
    rollouts: tuple[RolloutLine, ...]


class ShowRollout(Frozen):
    run: str
    rollout: str


class ShownRollout(Frozen):
    run: str
    record: dict[str, Any]


@operation("rollout.list", role=Role.OWNER, changes_state=False)
def list_rollouts(request: ListRollouts, caller: Caller) -> RolloutPage:
    """One page of a run's rollouts; only that page is read."""
    folder = find_run(caller.runs, request.run)
    log = GangLog(folder.rollout_logs())
    stop = min(request.start + request.count, len(log))  # once: the log may be growing
    lines = [
        RolloutLine(
            id=record["id"],
            ending=entry.ending.value,
            reward=entry.reward,
            tool_calls=entry.tool_calls,
            sampled_tokens=entry.sampled,
            seconds=entry.seconds,
            answer=record["answer"][:200],
            reason=_first_reason(record),
        )
        for entry, record in zip(
            log.entries(request.start, stop), log.records(request.start, stop), strict=True
        )
    ]
    return RolloutPage(run=folder.id, total=len(log), start=request.start, rollouts=tuple(lines))


@operation("rollout.show", role=Role.OWNER, changes_state=False)
def show_rollout(request: ShowRollout, caller: Caller) -> ShownRollout:
    """One rollout, whole: messages, tool calls, verdicts and reasons."""
    folder = find_run(caller.runs, request.run)
    record = GangLog(folder.rollout_logs()).find(request.rollout)
    return ShownRollout(run=folder.id, record=record)


def _first_reason(record: dict[str, Any]) -> str:
    """Why it did not pass, where it did not."""
    for judgement in record["judgements"]:
        score = judgement["score"]
        if score is None or score < judgement["threshold"]:
            return f"{judgement['measure']}: {judgement['reason']}"[:200]
    return str(record["detail"])[:200]
