"""Operation that shows a group: the rollouts of one case in one step, to compare them."""

from __future__ import annotations

from pydantic import Field

from sparring.contracts.foreign import ForeignTable, MixedText
from sparring.contracts.specs import Frozen
from sparring.operations.operation import Caller, Role, operation
from sparring.operations.rollouts import ShowRollout, find_rollout, open_log, readable_run
from sparring.run_folder import RunFolder
from sparring.run_folder.records import RolloutRecord
from sparring.run_folder.sharded_log import ShardedLog

_MAX_SIBLINGS = 256
_WITHOUT = ("rows", "format", "key")


class Sibling(Frozen):
    """One rollout of a group, without its tokens."""

    position: int
    record: ForeignTable


class Group(Frozen):
    """The rollouts of one case in one step."""

    run: str
    case: MixedText
    step: int
    rollouts: tuple[Sibling, ...] = Field(description="ordered by index")


@operation("rollout.group", role=Role.OPERATOR, changes_state=False)
def show_group(request: ShowRollout, caller: Caller) -> Group:
    """Show the rollouts of the group that a rollout belongs to."""
    folder = readable_run(request.run, caller)
    log = open_log(folder, request.log)
    position, record = find_rollout(log, folder, request)
    found = {position: record, **_siblings(log, record, _group_size(folder))}
    ordered = sorted(found.items(), key=lambda each: (each[1]["key"]["index"], each[0]))
    return Group(
        run=folder.id,
        case=str(record["case"]["id"]),
        step=int(record["key"]["step"]),
        rollouts=tuple(
            Sibling(
                position=place,
                record={name: part for name, part in each.items() if name not in _WITHOUT},
            )
            for place, each in ordered
        ),
    )


def _group_size(folder: RunFolder) -> int:
    """Return the number of rollouts of a case in a step, by the run's settings."""
    spec = folder.read_spec()
    settings = spec.get("settings") or spec.get("play") or {}
    sizes = (spec.get("rollouts"), settings.get("num_generations"))
    return max(int(each or 1) for each in sizes)


def _siblings(log: ShardedLog, record: RolloutRecord, size: int) -> dict[int, RolloutRecord]:
    """Return the other rollouts of the group by position. Their ids differ only in the index."""
    stem, _, own = str(record["id"]).rpartition(".")
    found: dict[int, RolloutRecord] = {}
    for number in range(_MAX_SIBLINGS):
        if str(number) == own:
            continue
        position = log.position(f"{stem}.{number}")
        if position is not None:
            found[position] = next(log.records(position, position + 1))
        elif number >= size:
            break
    return found
