"""Operations that list and show the rollouts of a run, and the group that one belongs to."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from sparring.contracts.command_line import OnCommandLine
from sparring.contracts.errors import InvalidInput, NotPermitted
from sparring.contracts.foreign import ForeignTable, ForeignText, MixedText
from sparring.contracts.rollouts import Ending
from sparring.contracts.specs import Frozen
from sparring.operations.held_out import is_held_out
from sparring.operations.operation import Caller, Forms, Role, operation
from sparring.operations.run_views import RunQuery
from sparring.run_folder import RunFolder
from sparring.run_folder.records import CaseRecord, JudgementRecord, RolloutRecord
from sparring.run_folder.rollout_log import Item
from sparring.run_folder.shard_files import Entry
from sparring.run_folder.sharded_log import ShardedLog, candidates, needle_of
from sparring.runs.finding import find_run

_MAX_SCANNED = 100_000  # index entries read for one page
_MAX_READ = 3_000  # records read for one page
_MAX_BYTES = 24_000_000  # size of the records read for one page
_SHOWN = 200
_MAX_SIBLINGS = 256
_WITHOUT_TOKENS = ("rows", "format", "key")
_JSON_SYNTAX = re.compile(r'["\\\[\]{}:,]')
_CONDITIONS = (
    "case", "question", "measure", "verdict", "tool", "text", "min_advantage", "max_advantage",
)  # fmt: skip

STEP = OnCommandLine("--step", help="only rollouts of this step")
LogName = Literal["rollouts", "validation", "demonstrations"]


class RolloutsQuery(RunQuery):
    """The rollouts of one run."""

    log: LogName = Field(
        default="rollouts",
        description="the log to read; only a training run has validation and demonstrations",
    )


class ListRollouts(RolloutsQuery):
    """Filters on the rollouts to list."""

    start: int = Field(
        default=0, ge=0, description="first position to show: `next` of the previous page"
    )
    count: int = Field(default=20, ge=1, le=1000, description="maximum number of rollouts")
    player: str = Field(
        default="",
        max_length=500,
        description="only rollouts of this player: base or trained for a proof; learner, "
        "null-players or the name of another model for a check",
    )
    ending: Ending | None = Field(default=None, description="only rollouts with this ending")
    min_reward: float | None = Field(
        default=None, description="only rollouts with at least this reward"
    )
    max_reward: float | None = Field(
        default=None, description="only rollouts with at most this reward"
    )
    first_step: Annotated[int | None, STEP] = Field(
        default=None, ge=0, description="only this step and later ones"
    )
    last_step: Annotated[int | None, STEP] = Field(
        default=None, ge=0, description="only this step and earlier ones"
    )
    case: str = Field(default="", max_length=500, description="only rollouts of this case, by id")
    question: str = Field(
        default="", max_length=500, description="only rollouts whose question contains this text"
    )
    measure: str = Field(
        default="", max_length=500, description="only rollouts that this measure judged"
    )
    verdict: Literal["", "passed", "failed", "unscored"] = Field(
        default="",
        description="only rollouts with this verdict of `measure`; without `measure`, passed means "
        "by all measures, failed and unscored by at least one",
    )
    tool: str = Field(default="", max_length=500, description="only rollouts that call this tool")
    text: str = Field(
        default="",
        max_length=500,
        description="only rollouts with this text in a message, tool call, answer or reason",
    )
    min_advantage: float | None = Field(
        default=None, description="only rollouts with at least this advantage"
    )
    max_advantage: float | None = Field(
        default=None, description="only rollouts with at most this advantage"
    )

    def wants(self, entry: Entry) -> bool:
        """Return whether an index entry matches the ending and the bounds on the reward. Without a
        reward, it matches no bound."""
        if self.ending is not None and entry.ending is not self.ending:
            return False
        return _is_within(entry.reward, self.min_reward, self.max_reward)

    def needles(self) -> list[bytes]:
        """Return texts that the line of every matching record contains, in lower case."""
        named = [each for each in (self.case, self.measure, self.tool) if each]
        quoted = [json.dumps(each).lower().encode() for each in named]
        plain = [each for each in quoted if b"\\u" not in each]
        # A question that is not text is shown as JSON with spaces, and stored without them.
        question = max((part.strip() for part in _JSON_SYNTAX.split(self.question)), key=len)
        return [*plain, *(needle_of(each) for each in (question, self.text) if each)]

    @property
    def needs_record(self) -> bool:
        """Whether a condition is on the record, so that each record has to be read in full."""
        return any(getattr(self, name) not in ("", None) for name in _CONDITIONS)

    def matches(self, record: RolloutRecord) -> bool:
        """Return whether a record meets every condition on records."""
        return (
            (not self.case or record["case"]["id"] == self.case)
            and self.question.casefold() in shown_input(record["case"]).casefold()
            and _is_within(record.get("advantage"), self.min_advantage, self.max_advantage)
            and self._matches_verdict(record)
            and (not self.tool or self.tool in _tools(record))
            and (
                not self.text
                or any(self.text.casefold() in each.casefold() for each in texts_of(record))
            )
        )

    def _matches_verdict(self, record: RolloutRecord) -> bool:
        judged = record["judgements"]
        if self.measure:
            judged = [each for each in judged if each["measure"] == self.measure]
            return any(not self.verdict or _verdict(each) == self.verdict for each in judged)
        if self.verdict == "passed":
            return bool(judged) and all(_verdict(each) == "passed" for each in judged)
        if self.verdict == "unscored" and not judged:
            return True
        return not self.verdict or any(_verdict(each) == self.verdict for each in judged)


class RolloutLine(Frozen):
    """One rollout of a page."""

    position: int = Field(description="in the log, from 0")
    id: MixedText
    step: int
    ending: str
    reward: float | None
    tool_calls: int
    sampled_tokens: int
    seconds: float
    answer: ForeignText
    reason: ForeignText = Field(
        description="why the rollout did not pass, or the detail of its ending"
    )
    case: MixedText = ""
    question: ForeignText = Field(default="", description="the case's input, shortened")
    advantage: float | None = None
    passed: bool | None = Field(
        default=None,
        description="whether all measures passed; null if one could not tell or none judged",
    )


class RolloutPage(Frozen):
    """One page of rollouts."""

    run: str
    total: int
    start: int
    rollouts: tuple[RolloutLine, ...]
    next: int | None = Field(default=None, description="pass as `start` for the next page")

    def first(self, count: int) -> RolloutPage:
        """Return the first rollouts of the page, with `next` pointing to the rest."""
        if count >= len(self.rollouts):
            return self
        update = {"rollouts": self.rollouts[:count], "next": self.rollouts[count].position}
        return self.model_copy(update=update)


class ShowRollout(RolloutsQuery):
    """One rollout of a run."""

    rollout: str = Field(description="the rollout's id, from a page of rollouts")


class ShownRollout(Frozen):
    """One complete rollout."""

    run: str
    record: ForeignTable = Field(description="messages, tool calls, verdicts and reasons")
    position: int = Field(default=0, description="in the log, from 0")

    def short(self) -> ShownRollout:
        """Return a copy without token rows."""
        shown = {name: value for name, value in self.record.items() if name not in _WITHOUT_TOKENS}
        return self.model_copy(update={"record": shown})


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


@operation(
    "rollout.list",
    role=Role.OPERATOR,
    changes_state=False,
    forms=Forms(cli="rollout list", tool="list_rollouts"),
)
def list_rollouts(request: ListRollouts, caller: Caller) -> RolloutPage:
    """List one page of a run's rollouts, filtered by step, case, reward, verdict, tool or text."""
    folder = readable_run(request.run, caller)
    log = open_log(folder, request.log)
    total = len(log)  # once: the log may be growing
    lines: list[RolloutLine] = []
    following, entries, records, size = total, 0, 0, 0
    for position, entry in _candidates(request, log, total):
        is_spent = records >= _MAX_READ or size >= _MAX_BYTES or entries >= _MAX_SCANNED
        if entry is None or len(lines) == request.count or is_spent:
            following = position
            break
        entries += 1
        if not request.wants(entry):
            continue
        record = log.read(position, entry, heads=not request.needs_record)
        records, size = records + 1, size + min(entry.length, _MAX_BYTES)
        if not request.needs_record or request.matches(record):
            lines.append(_line(Item(entry, record), position, request.measure))
    return RolloutPage(
        run=folder.id,
        total=total,
        start=request.start,
        rollouts=tuple(lines),
        next=following if following < total else None,
    )


@operation(
    "rollout.show",
    role=Role.OPERATOR,
    changes_state=False,
    forms=Forms(cli="rollout show", tool="show_rollout"),
)
def show_rollout(request: ShowRollout, caller: Caller) -> ShownRollout:
    """Show one complete rollout: messages, tool calls, verdicts and reasons."""
    folder = readable_run(request.run, caller)
    log = open_log(folder, request.log)
    position, record = find_rollout(log, folder, request)
    return ShownRollout(run=folder.id, record=dict(record), position=position)


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
                record={name: part for name, part in each.items() if name not in _WITHOUT_TOKENS},
            )
            for place, each in ordered
        ),
    )


def find_rollout(
    log: ShardedLog, folder: RunFolder, request: ShowRollout
) -> tuple[int, RolloutRecord]:
    """Return a rollout's position and record. Raise InvalidInput if the log does not have it."""
    position = log.position(request.rollout)
    if position is None:
        is_usual = request.log == ShowRollout.model_fields["log"].default
        option = "" if is_usual else f" --log {request.log}"
        advice = "; for rollouts of another log, pass --log" if is_usual else ""
        raise InvalidInput(
            f"no rollout {request.rollout[:200]!r} in the log {request.log!r} of {folder.path}; "
            f"`sparring rollout list {folder.id}{option}` shows them{advice}"
        )
    return position, next(log.records(position, position + 1))


def readable_run(run: str, caller: Caller) -> RunFolder:
    """Find a run. Raise NotPermitted if it plays held-out cases and the caller is not an owner."""
    folder = find_run(caller.runs, run)
    if not caller.is_owner and is_held_out(folder):
        raise NotPermitted(
            f"run {folder.id} was played on held-out cases, which only the owner may see; its "
            "figures are in its results"
        )
    return folder


def open_log(folder: RunFolder, name: LogName) -> ShardedLog:
    """Return one of the run's rollout logs."""
    return ShardedLog(folder.rollout_logs(name), is_frozen=True)


def _candidates(
    request: ListRollouts, log: ShardedLog, total: int
) -> Iterator[tuple[int, Entry | None]]:
    """Yield positions and index entries from `start` on, of the requested steps. A search that has
    read enough yields the position at which it stops, with None, and ends."""
    ranges = [range(total)]
    if request.first_step is not None or request.last_step is not None:
        last = request.last_step if request.last_step is not None else 2**32 - 1
        ranges = log.steps(request.first_step or 0, last)
    within = log.positions_of(request.player) if request.player else range(total)
    first, end = max(within.start, request.start), min(within.stop, total)
    ranges = [range(max(each.start, first), min(each.stop, end)) for each in ranges]
    needles = [each for each in request.needles() if each]
    if not needles:
        for each in ranges:
            yield from enumerate(log.entries(each.start, each.stop), each.start)
        return
    for position, is_found in candidates(log, needles, [each for each in ranges if each]):
        entry = next(log.entries(position, position + 1)) if is_found else None
        yield position, entry


def _line(item: Item, position: int, measure: str) -> RolloutLine:
    entry, record = item.entry, item.record
    return RolloutLine(
        position=position,
        id=record["id"],
        step=entry.step,
        ending=entry.ending.value,
        reward=entry.reward,
        tool_calls=entry.tool_calls,
        sampled_tokens=entry.sampled,
        seconds=entry.seconds,
        answer=record["answer"][:_SHOWN],
        reason=failure_reason(record, measure) or str(record["detail"])[:_SHOWN],
        case=str(record["case"]["id"])[:_SHOWN],
        question=shown_input(record["case"])[:_SHOWN],
        advantage=record.get("advantage"),
        passed=has_passed(record),
    )


def has_passed(record: RolloutRecord) -> bool | None:
    """Return whether all measures passed; None if one could not tell or none judged."""
    verdicts = {_verdict(each) for each in record["judgements"]}
    if not verdicts or "unscored" in verdicts:
        return None
    return verdicts == {"passed"}


def failure_reason(record: RolloutRecord, measure: str = "") -> str:
    """Return the reason of a measure that did not pass, first of `measure`; empty if all passed."""
    for judgement in sorted(record["judgements"], key=lambda each: each["measure"] != measure):
        if _verdict(judgement) != "passed":
            return f"{judgement['measure']}: {judgement['reason']}"[:_SHOWN]
    return ""


def _is_within(value: float | None, least: float | None, most: float | None) -> bool:
    """Return whether a value is within the bounds; without a value, it is within none."""
    if least is None and most is None:
        return True
    lowest, highest = -math.inf if least is None else least, math.inf if most is None else most
    return value is not None and lowest <= value <= highest


def shown_input(case: CaseRecord) -> str:
    """Return a case's input as text; of a conversation, only the last message with text."""
    given = case.get("input")
    if isinstance(given, str):
        return given
    for message in reversed(given if isinstance(given, list) else []):
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str) and content:
            return content
    return "" if given is None else json.dumps(given, ensure_ascii=False)[:_SHOWN]


def texts_of(record: RolloutRecord) -> Iterator[str]:
    """Yield the texts of a rollout that a search covers: answer, detail, messages, tool calls and
    reasons."""
    yield str(record["answer"])
    yield str(record["detail"])
    for message in record["messages"]:
        yield str(message.get("content") or "")
        yield str(message.get("thinking") or "")
        for call in message.get("calls") or ():
            yield str(call.get("tool"))
            yield str(call.get("arguments"))
    for judgement in record["judgements"]:
        yield str(judgement["reason"])


def _tools(record: RolloutRecord) -> set[str]:
    return {str(call.get("tool")) for call in record["tool_calls"]}


def _verdict(judgement: JudgementRecord) -> str:
    score = judgement["score"]
    if score is None:
        return "unscored"
    return "passed" if score >= judgement["threshold"] else "failed"


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
