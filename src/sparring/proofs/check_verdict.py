"""The verdict of a check: whether the task can be learned, why, and what to do next.

The verdict combines problems in the rollouts, the findings of the audit, the verdicts on the
rewarded measures (proofs/learnability.py) and the share of live groups.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparring.contracts.rollouts import Ending, Rollout
from sparring.contracts.summaries import (
    AuditFinding,
    CheckVerdict,
    Fault,
    LiveShare,
    MeasureVerdict,
    Movement,
    Note,
    PlayedModel,
)
from sparring.proofs.audit import ADVICE
from sparring.proofs.learnability import describe, has_differing_group, is_passed

_HALF = 0.5
_OFTEN = 0.2  # a problem is reported if it occurs in a larger share of the rollouts
_ENOUGH_LIVE = 0.2  # the share of live groups from which training can learn
_RARELY_CALLED = 0.05  # below this share of rollouts with a tool call, calls are too rare to learn
_UNPARSABLE = (Ending.UNPARSABLE_CALL, Ending.UNKNOWN_TOOL)
# Faults of the model, not of a measure. The verdicts on the measures already report them.
OF_THE_MODEL = (Fault.SATURATED, Fault.NEVER_PASSED)
_REASON_LENGTH = 120
_CALL_AS_TEXT = re.compile(r'"name"\s*:\s*".+?"[^"]*"(arguments|parameters)"\s*:', re.S)


@dataclass(frozen=True, slots=True)
class Facts:
    """The measurements of a check.

    `live` starts with the planned group size, `measures` with the weakest measure. `planned` is
    the number of rollouts that were planned for the model to be trained. `demonstrations` names
    the source of a warm start, and `shown` states how many of its demonstrations pass.
    `call_format` says how the model's family reads tool calls.
    """

    environment: str = "ENV"
    run: str = "RUN"
    planned: int = 0
    minutes: float = 0.0
    is_stopped: bool = False
    measures: Sequence[MeasureVerdict] = ()
    obstacles: Sequence[str] = ()
    failures: Sequence[str] = ()
    rollouts: Sequence[Rollout] = ()
    findings: Sequence[AuditFinding] = ()
    rewarded: frozenset[str] = frozenset()
    live: Sequence[LiveShare] = ()
    others: Sequence[PlayedModel] = ()
    completion_length: int = 0
    has_tools: bool = False
    call_format: str = ""
    masks_truncated: bool = True
    log: str = "learner"
    demonstrations: str = ""
    shown: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """The verdict of a check, with its reason and all notes."""

    verdict: CheckVerdict
    why: str
    notes: tuple[Note, ...]


def judge(facts: Facts) -> Checked:
    """Return the verdict: broken or constant if there is a grave note, otherwise as the rewards
    suggest."""
    notes = [*_obstacles(facts), *_audit_notes(facts), *_cut_short(facts)]
    extra = [*_already_passed(facts), *_tool_notes(facts), *_other_model_notes(facts)]
    grave = [note for note in notes if note.is_grave]
    constant = [note for note in grave if note.what == Fault.CONSTANT]
    if grave and len(constant) < len(grave):
        first = next(note for note in grave if note.what != Fault.CONSTANT)
        return Checked(CheckVerdict.BROKEN, first.message, (*notes, *extra))
    if constant:
        return Checked(CheckVerdict.CONSTANT, constant[0].message, (*notes, *extra))
    verdict, why, reward_notes = _judge_rewards(facts)
    return Checked(verdict, why, (*reward_notes, *notes, *extra))


# ---------------------------------------------------------------------- obstacles


def _obstacles(facts: Facts) -> Iterator[Note]:
    for obstacle in facts.obstacles:
        yield Note("cannot be trained", obstacle, is_grave=True)
    for failure in facts.failures:
        yield Note("failed", failure, is_grave=True)
    if not facts.rollouts:
        if not facts.obstacles and not facts.failures:
            yield Note("nothing played", "no rollout finished in time", is_grave=True)
        return
    yield from _unreadable_calls(facts)
    yield from _untagged_calls(facts)
    yield from _truncated(facts)
    yield from _failing_tools(facts)
    yield from _unscored(facts)


def _unreadable_calls(facts: Facts) -> Iterator[Note]:
    count = len(facts.rollouts)
    unparsable = [each for each in facts.rollouts if each.ending in _UNPARSABLE]
    if len(unparsable) / count > _OFTEN:
        yield Note(
            "calls cannot be read",
            f"{len(unparsable)} of {count} rollouts end in a tool call that cannot be parsed or "
            f"names an unknown tool: {unparsable[0].detail}",
            "nothing to do: the calls in the demonstrations of the warm start can be read"
            if facts.shown
            else "show a worked call in the instructions or in the first turns of each case, or "
            "train on demonstrations first (warm_start); if the model has its own call format, "
            "declare it (docs/families.md)",
            _rollout_path(facts, unparsable[0]),
            is_grave=len(unparsable) / count >= _HALF and not facts.shown,
        )


def _untagged_calls(facts: Facts) -> Iterator[Note]:
    """Yield a note if rollouts answer with the text of a tool call, which nothing called."""
    untagged = [
        each
        for each in facts.rollouts
        if facts.has_tools and not each.tool_calls and _CALL_AS_TEXT.search(each.answer)
    ]
    if untagged and len(untagged) / len(facts.rollouts) > _OFTEN / 2:
        quoted = " ".join(untagged[0].answer.split())[:_REASON_LENGTH]
        yield Note(
            "calls without tags",
            f"{len(untagged)} of {len(facts.rollouts)} rollouts answer with a tool call as text "
            f"instead of calling it: {quoted}"
            + (f"; {facts.call_format}" if facts.call_format else ""),
            "show worked calls before each case, or start from demonstrations (warm_start); if "
            "the model has its own call format, declare it (docs/families.md)",
            _rollout_path(facts, untagged[0]),
        )


def _truncated(facts: Facts) -> Iterator[Note]:
    count = len(facts.rollouts)
    cut = [each for each in facts.rollouts if each.is_truncated]
    if len(cut) / count > _OFTEN:
        yield Note(
            "truncated",
            f"{_cause_of_cuts(facts)}{len(cut)} of {count} rollouts are cut off by "
            f"max_completion_length={facts.completion_length} before they answer",
            _truncation_advice(facts),
            _rollout_path(facts, cut[0]),
            is_grave=len(cut) / count >= _HALF and facts.masks_truncated and not facts.shown,
        )


def _cause_of_cuts(facts: Facts) -> str:
    """Return a clause that names a likely cause of truncation: hardly any tool calls."""
    if not facts.has_tools or _call_rate(facts) >= _RARELY_CALLED:
        return ""
    called = sum(bool(each.tool_calls) for each in facts.rollouts)
    return f"{called or 'none'} of {len(facts.rollouts)} rollouts call a tool, and "


def _failing_tools(facts: Facts) -> Iterator[Note]:
    calls = [call for each in facts.rollouts for call in each.tool_calls]
    failed = [call for call in calls if call.failure is not None]
    if calls and len(failed) / len(calls) > _OFTEN:
        example = next(each for each in facts.rollouts if any(c.failure for c in each.tool_calls))
        yield Note(
            "tools fail",
            f"{len(failed)} of {len(calls)} tool calls fail, for example {failed[0].tool}: "
            f"{failed[0].result[:200]}",
            "check whether the tool itself or the model's arguments cause the failures",
            _rollout_path(facts, example),
            is_grave=len(failed) == len(calls) and len(calls) >= 8 and not facts.shown,
        )


def _truncation_advice(facts: Facts) -> str:
    """Advise a larger budget; if the model hardly ever calls a tool, first advise adding worked
    examples with tool calls or a warm start, because more tokens alone would not help."""
    if facts.shown:
        return "nothing to do: the demonstrations of the warm start fit into the budget"
    more = f"raise max_completion_length to {4 * facts.completion_length}"
    if facts.has_tools and _call_rate(facts) < _RARELY_CALLED:
        return f"{_advice(facts)}; only if that does not help, {more}"
    return f"{more}, or ask for short answers in the instructions"


def _unscored(facts: Facts) -> Iterator[Note]:
    unscored = [each for each in facts.rollouts if each.reward is None]
    if not unscored:
        return
    causes = Counter(each.unscored_because for each in unscored)
    cause, _ = causes.most_common(1)[0]
    example = next(each for each in unscored if each.unscored_because == cause)
    share = len(unscored) / len(facts.rollouts)
    if share > _OFTEN / 2:
        yield Note(
            "unscored",
            f"{len(unscored)} of {len(facts.rollouts)} rollouts could not be scored: {cause}",
            "training does not learn from them; fix the cause",
            _rollout_path(facts, example),
            is_grave=share >= _HALF,
        )


def _audit_notes(facts: Facts) -> Iterator[Note]:
    """Yield a note for each finding. It is grave only if the finding is grave and its measure is
    rewarded; for a constant measure, only if all rewarded measures are constant, because
    otherwise the reward still varies."""
    constant = {each.measure for each in facts.findings if each.fault is Fault.CONSTANT}
    for each in facts.findings:
        is_grave = each.measure in facts.rewarded and each.is_grave
        if each.fault is Fault.CONSTANT:
            is_grave = bool(facts.rewarded) and facts.rewarded <= constant
        yield Note(
            each.fault.value,
            f"{each.measure} {each.message}",
            ADVICE[each.fault],
            each.rollout,
            is_grave=is_grave,
        )


def _already_passed(facts: Facts) -> Iterator[Note]:
    """Yield a note for each measure that nearly every rollout passes: its weight rewards nothing
    that training could change."""
    if len(facts.measures) < 2:
        return
    for each in facts.measures:
        if each.movement is Movement.ALREADY_PASSED:
            yield Note(
                "already passed",
                f"{describe(each)}, so its share of the reward is given for nothing",
                f"{ADVICE[Fault.SATURATED]}; a condition that must hold stays visible so",
            )


def _cut_short(facts: Facts) -> Iterator[Note]:
    played = len(facts.rollouts)
    if not facts.rollouts or played >= facts.planned:
        return
    until = f"in {facts.minutes:g} minutes"
    advice = f"`sparring check {facts.environment} --minutes {3 * facts.minutes:g}`"
    if facts.is_stopped:
        until, advice = "until the stop", f"`sparring run resume {facts.run}`"
    yield Note("cut short", f"{played} of {facts.planned} rollouts were played {until}", advice)


# ---------------------------------------------------------------------- rewards


def _judge_rewards(facts: Facts) -> tuple[CheckVerdict, str, list[Note]]:
    planned = facts.live[0]
    scored = [each for each in facts.rollouts if each.reward is not None]
    passed = sum(map(is_passed, scored)) / len(scored)
    rates = (
        f"{passed:.0%} of rollouts pass, and {planned.value:.0%} of groups of "
        f"{planned.group_size} will be live ({planned.low:.0%} … {planned.high:.0%} in the first "
        "five steps)"
    )
    never_passing = [each for each in facts.measures if each.movement is Movement.NEVER_PASSES]
    if never_passing and (facts.shown or len(never_passing) < len(facts.measures)):
        return CheckVerdict.NOT_AS_IT_IS, _never_passes(facts, never_passing), []
    if planned.value >= _ENOUGH_LIVE and has_differing_group(facts.rollouts):
        return CheckVerdict.LEARNABLE, rates + _list_unlearnable(facts.measures), []
    rewards = [each.reward for each in facts.rollouts if each.reward is not None]
    low, high = min(rewards), max(rewards)
    if low == high and 0 < low < 1:
        why = f"every rollout has the reward {low:g}, so there is no difference to learn from"
        return CheckVerdict.CONSTANT, why, []
    notes = [*_larger_groups(facts)]
    if passed >= _HALF:
        advice = "use harder cases, which the model sometimes fails"
        notes.insert(0, Note("too easy", rates, advice))
        return CheckVerdict.TOO_EASY, rates, notes
    why = _never_passes(facts, never_passing) if never_passing else rates
    notes.insert(0, Note("too hard", rates, _advice(facts)))
    return CheckVerdict.TOO_HARD, why, notes


def _list_unlearnable(measures: Sequence[MeasureVerdict]) -> str:
    """Return text that names the measures that training cannot improve."""
    fixed = [describe(each) for each in measures if each.movement is not Movement.CAN_BE_LEARNED]
    return f"; but {', and '.join(fixed)}" if fixed else ""


def _never_passes(facts: Facts, never_passing: Sequence[MeasureVerdict]) -> str:
    """Return text that states which measures never pass, the cause, and the advice."""
    names = ", and ".join(map(describe, never_passing))
    if _call_rate(facts) < _RARELY_CALLED and facts.has_tools:
        because = ", because tools are hardly ever called"
    else:
        why = never_passing[0].why[:_REASON_LENGTH]
        because = f" (most often: {why})" if why else ""
    return f"{names}{because}. {_advice(facts)}"


def _larger_groups(facts: Facts) -> Iterator[Note]:
    """Suggest the smallest group size above the planned one that has enough live groups."""
    planned = facts.live[0]
    larger = [each for each in facts.live[1:] if each.group_size > planned.group_size]
    enough = [each for each in larger if each.value >= _ENOUGH_LIVE]
    if enough:
        first = min(enough, key=lambda each: each.group_size)
        yield Note(
            "group size",
            f"{first.value:.0%} of groups of {first.group_size} would be live",
            f"set num_generations={first.group_size}",
        )


def _advice(facts: Facts) -> str:
    """Return advice, with a command, for a measure that never passes."""
    name = facts.environment
    if facts.shown:
        return (
            f"{facts.shown}; start from them: `sparring train {name} --warm-start "
            f"{facts.demonstrations}`"
        )
    teachers = [each for each in facts.others if each.correct]
    if teachers:
        best = max(teachers, key=lambda each: each.accuracy or 0.0)
        return (
            f"{best.name} passes; start from its rollouts: `sparring train {name} --warm-start "
            f"{facts.run}`"
        )
    if facts.has_tools and _call_rate(facts) < _RARELY_CALLED:
        existing = _worked_calls(facts.rollouts)
        more = "two worked examples with calls"
        if existing:
            more = f"{existing + 1} worked calls instead of {existing}"
        first = f"Show {more} (`examples`), with other values"
    else:
        more = "more worked examples" if _worked_calls(facts.rollouts) else "worked examples"
        first = f"Start with easier cases, or show {more}"
    start = f"`sparring train {name} --warm-start DEMOS.jsonl`"
    return f"{first}; or start from demonstrations: {start}"


def _worked_calls(rollouts: Sequence[Rollout]) -> int:
    """Return the number of tool calls in the messages that a rollout began with."""
    first = rollouts[0]
    spoken = [each for each in first.messages if each.role == "assistant"]
    return sum(len(each.calls) for each in spoken[: len(spoken) - first.turns])


def _call_rate(facts: Facts) -> float:
    """Return the share of rollouts with a tool call."""
    return sum(bool(each.tool_calls) for each in facts.rollouts) / max(1, len(facts.rollouts))


# ---------------------------------------------------------------------- tools and other models


def _tool_notes(facts: Facts) -> Iterator[Note]:
    if not facts.has_tools or not facts.rollouts:
        return
    call_rate = _call_rate(facts)
    if call_rate < _RARELY_CALLED:
        yield Note(
            "tools are not called",
            f"{call_rate:.0%} of rollouts call a tool; a model cannot learn what it never tries",
            _advice(facts),
            _rollout_path(facts, facts.rollouts[0]),
        )


def _other_model_notes(facts: Facts) -> Iterator[Note]:
    for other in facts.others:
        if other.message:
            yield Note("another model", f"{other.name}: {other.message}")
    scored = [each for each in facts.others if each.accuracy is not None]
    passed = any(map(is_passed, facts.rollouts))
    if solving := [each for each in scored if (each.accuracy or 0.0) >= _HALF]:
        best = max(solving, key=lambda each: each.accuracy or 0.0)
        yield Note(
            "a teacher",
            f"{best.name} solves {best.accuracy:.0%} of its rollouts, so it can be the teacher of "
            "a warm start",
        )
    elif scored and not any(each.accuracy for each in scored) and not passed:
        yield Note(
            "no teacher",
            f"no other model passes a rollout, either: {', '.join(each.name for each in scored)}",
            "check whether the measures or the tools are at fault",
        )


def _rollout_path(facts: Facts, rollout: Rollout) -> str:
    return f"{facts.log}/{rollout.id}"
