"""Reading rollouts back, by range."""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field

from sparring.contracts.cases import Split
from sparring.contracts.errors import NotPermitted
from sparring.contracts.foreign import ForeignTable, ForeignText
from sparring.contracts.rollouts import Ending
from sparring.contracts.specs import Frozen
from sparring.operations.operation import Caller, Forms, Role, operation
from sparring.operations.run_views import RunQuery
from sparring.run_folder import RunFolder
from sparring.run_folder.rollout_log import Entry, GangLog
from sparring.runs.finding import find_run

_FOR_MACHINES = ("rows", "format", "key")
_LOOKED_THROUGH = 100_000  # entries of the index for one page


class ListRollouts(RunQuery):
    start: int = Field(default=0, ge=0, description="the first to show; `next` of an earlier page")
    count: int = Field(default=20, ge=1, le=1000, description="at most so many")
    ending: Ending | None = Field(default=None, description="only those that ended like this")
    min_reward: float | None = Field(default=None, description="only with this reward or more")
    max_reward: float | None = Field(default=None, description="only with this reward or less")

    def wants(self, entry: Entry) -> bool:
        """Rollouts without a reward have neither more nor less than another."""
        if self.ending is not None and entry.ending is not self.ending:
            return False
        if self.min_reward is None and self.max_reward is None:
            return True
        least = -math.inf if self.min_reward is None else self.min_reward
        most = math.inf if self.max_reward is None else self.max_reward
        return entry.reward is not None and least <= entry.reward <= most


class RolloutLine(Frozen):
    position: int = Field(description="in the log, from 0")
    id: str
    step: int
    ending: str
    reward: float | None
    tool_calls: int
    sampled_tokens: int
    seconds: float
    answer: ForeignText
    reason: ForeignText = Field(description="why it did not pass, where it did not")


class RolloutPage(Frozen):
    run: str
    total: int
    start: int
    rollouts: tuple[RolloutLine, ...]
    next: int | None = Field(default=None, description="pass as `start` for the next page")

    def first(self, count: int) -> RolloutPage:
        """The beginning of the page, with the way to the rest of it."""
        if count >= len(self.rollouts):
            return self
        update = {"rollouts": self.rollouts[:count], "next": self.rollouts[count].position}
        return self.model_copy(update=update)


class ShowRollout(RunQuery):
    rollout: str = Field(description="its id, from a page of rollouts")


class ShownRollout(Frozen):
    run: str
    record: ForeignTable = Field(description="messages, tool calls, verdicts and reasons")

    def short(self) -> ShownRollout:
        """Without the tokens themselves."""
        kept = {name: value for name, value in self.record.items() if name not in _FOR_MACHINES}
        return self.model_copy(update={"record": kept})


@operation(
    "rollout.list",
    role=Role.OPERATOR,
    changes_state=False,
    forms=Forms(cli="rollout list", tool="list_rollouts", known_as=("get_samples", "traces")),
)
def list_rollouts(request: ListRollouts, caller: Caller) -> RolloutPage:
    """One page of a run's rollouts, by range, by how they ended or by reward."""
    folder = _readable(request.run, caller)
    log = GangLog(folder.rollout_logs())
    total = len(log)  # once: the log may be growing
    stop = min(request.start + _LOOKED_THROUGH, total)
    found: list[int] = []
    position = request.start
    for position, entry in enumerate(log.entries(request.start, stop), request.start):
        if request.wants(entry):
            found.append(position)
        if len(found) == request.count:
            break
    behind = position + 1
    return RolloutPage(
        run=folder.id,
        total=total,
        start=request.start,
        rollouts=tuple(_line(log, each) for each in found),
        next=behind if behind < total else None,
    )


@operation(
    "rollout.show",
    role=Role.OPERATOR,
    changes_state=False,
    forms=Forms(cli="rollout show", tool="show_rollout"),
)
def show_rollout(request: ShowRollout, caller: Caller) -> ShownRollout:
    """One rollout, whole: messages, tool calls, verdicts and reasons."""
    folder = _readable(request.run, caller)
    record = GangLog(folder.rollout_logs()).find(request.rollout)
    return ShownRollout(run=folder.id, record=record)


def _line(log: GangLog, position: int) -> RolloutLine:
    (entry,) = log.entries(position, position + 1)
    (record,) = log.records(position, position + 1)
    return RolloutLine(
        position=position,
        id=record["id"],
        step=entry.step,
        ending=entry.ending.value,
        reward=entry.reward,
        tool_calls=entry.tool_calls,
        sampled_tokens=entry.sampled,
        seconds=entry.seconds,
        answer=record["answer"][:200],
        reason=_first_reason(record),
    )


def _readable(run: str, caller: Caller) -> RunFolder:
    """What was played on held-out cases is for the owner only."""
    folder = find_run(caller.runs, run)
    if not caller.is_owner and folder.read_spec().get("split") == Split.HELD_OUT:
        raise NotPermitted(
            f"run {folder.id} was played on held-out cases, which nobody but the owner sees; its "
            "figures are in its results"
        )
    return folder


def _first_reason(record: dict[str, Any]) -> str:
    """Why it did not pass, where it did not."""
    for judgement in record["judgements"]:
        score = judgement["score"]
        if score is None or score < judgement["threshold"]:
            return f"{judgement['measure']}: {judgement['reason']}"[:200]
    return str(record["detail"])[:200]
