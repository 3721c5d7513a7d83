"""The verdict of a check, in words: whether it is worth training, why, and what to do next.

The headline is that of the weakest measure that carries reward (proofs/measure_verdicts.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sparring.contracts.rollouts import Ending, Rollout
from sparring.proofs.audit import ADVICE, Fault, Finding
from sparring.proofs.learnability import LiveShare, is_passed
from sparring.proofs.measure_verdicts import MeasureVerdict, Movement

_HALF = 0.5
_OFTEN = 0.2
_ENOUGH_LIVE = 0.2
_RARELY_CALLED = 0.05
OF_THE_MODEL = (Fault.SATURATED, Fault.NEVER_PASSED)  # the measures' own verdicts say so
_SHORT = 120


class CheckVerdict(StrEnum):
    LEARNABLE = "learnable"
    NOT_AS_IT_IS = "not as it is"
    TOO_EASY = "too easy"
    TOO_HARD = "too hard"
    CONSTANT = "constant"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Note:
    """Something that was seen, with what to do about it, and a rollout that shows it. What is
    grave stands in the way of learning."""

    what: str
    message: str
    advice: str = ""
    rollout: str = ""
    is_grave: bool = False


@dataclass(frozen=True, slots=True)
class PlayedModel:
    """How one model did: the one to be trained, or one behind an endpoint."""

    name: str
    log: str
    cases: int
    rollouts: int
    unscored: int
    correct: int
    accuracy: float | None
    any_correct: float | None
    reward: float | None
    seconds: float
    is_learner: bool = False
    message: str = ""

    @property
    def solves(self) -> bool:
        return self.accuracy is not None and self.accuracy >= _HALF


@dataclass(frozen=True, slots=True)
class Facts:
    """What a check has found out. `live` has the planned group size first, `measures` the weakest
    measure. `planned` is how many rollouts the model to be trained was to play. `demonstrations`
    are those that training would begin with, and `shown` says how many of them pass."""

    environment: str = "ENV"
    run: str = "RUN"
    planned: int = 0
    minutes: float = 0.0
    measures: Sequence[MeasureVerdict] = ()
    obstacles: Sequence[str] = ()
    failures: Sequence[str] = ()
    rollouts: Sequence[Rollout] = ()
    findings: Sequence[Finding] = ()
    rewarded: frozenset[str] = frozenset()
    live: Sequence[LiveShare] = ()
    others: Sequence[PlayedModel] = ()
    completion_length: int = 0
    has_tools: bool = False
    masks_truncated: bool = True
    log: str = "learner"
    demonstrations: str = ""
    shown: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    verdict: CheckVerdict
    why: str
    notes: tuple[Note, ...]


def judge(facts: Facts) -> Checked:
    """What stands in the way comes first; then whether rewards differ; then how often."""
    notes = [*_in_the_way(facts), *_audited(facts), *_cut_short(facts)]
    besides = [*_of_tools(facts), *_of_others(facts)]
    grave = [note for note in notes if note.is_grave]
    constant = [note for note in grave if note.what == Fault.CONSTANT]
    if grave and len(constant) < len(grave):
        first = next(note for note in grave if note.what != Fault.CONSTANT)
        return Checked(CheckVerdict.BROKEN, first.message, (*notes, *besides))
    if constant:
        return Checked(CheckVerdict.CONSTANT, constant[0].message, (*notes, *besides))
    verdict, why, told = _by_rewards(facts)
    return Checked(verdict, why, (*told, *notes, *besides))


# ---------------------------------------------------------------------- what stands in the way


def _in_the_way(facts: Facts) -> Iterator[Note]:
    for obstacle in facts.obstacles:
        yield Note("cannot be trained", obstacle, is_grave=True)
    for failure in facts.failures:
        yield Note("failed", failure, is_grave=True)
    if not facts.rollouts:
        if not facts.obstacles and not facts.failures:
            yield Note("nothing played", "no rollout came to an end in time", is_grave=True)
        return
    yield from _of_endings(facts)
    yield from _of_unscored(facts)


def _of_endings(facts: Facts) -> Iterator[Note]:
    count = len(facts.rollouts)
    unparsable = [each for each in facts.rollouts if each.ending in _UNPARSABLE]
    if len(unparsable) / count > _OFTEN:
        yield Note(
            "calls cannot be read",
            f"{len(unparsable)} of {count} rollouts end in a tool call that cannot be read or "
            f"names no tool: {unparsable[0].detail}",
            "show one worked call in the instructions or as first turns of a case, or learn from "
            "demonstrations first (warm_start); if the model writes calls in a format of its own, "
            "declare it (docs/families.md)",
            _named(facts, unparsable[0]),
            is_grave=len(unparsable) / count >= _HALF,
        )
    cut = [each for each in facts.rollouts if each.is_truncated]
    if len(cut) / count > _OFTEN:
        yield Note(
            "truncated",
            f"{len(cut)} of {count} rollouts are cut off by max_completion_length="
            f"{facts.completion_length} before they answer",
            _against_truncation(facts),
            _named(facts, cut[0]),
            is_grave=len(cut) / count >= _HALF and facts.masks_truncated and not facts.shown,
        )
    calls = [call for each in facts.rollouts for call in each.tool_calls]
    failed = [call for call in calls if call.failure is not None]
    if calls and len(failed) / len(calls) > _OFTEN:
        shown = next(each for each in facts.rollouts if any(c.failure for c in each.tool_calls))
        yield Note(
            "tools fail",
            f"{len(failed)} of {len(calls)} tool calls fail, as {failed[0].tool}: "
            f"{failed[0].result[:200]}",
            "see whether the tool, or the model, is at fault",
            _named(facts, shown),
            is_grave=len(failed) == len(calls) and len(calls) >= 8,
        )


def _against_truncation(facts: Facts) -> str:
    """More tokens help a model that has something to say; one that never calls its tool only
    talks on."""
    if facts.shown:
        return "the demonstrations, which it learns from first, fit"
    more = f"raise max_completion_length to {4 * facts.completion_length}"
    if facts.has_tools and _called(facts) < _RARELY_CALLED:
        return f"no tool is called, and it talks on. {_way_in(facts)}; or {more}"
    return f"{more}, or ask for short answers"


_UNPARSABLE = (Ending.UNPARSABLE_CALL, Ending.UNKNOWN_TOOL)


def _of_unscored(facts: Facts) -> Iterator[Note]:
    silent = [each for each in facts.rollouts if each.reward is None]
    if not silent:
        return
    causes = Counter(_cause(each) for each in silent)
    cause, _ = causes.most_common(1)[0]
    shown = next(each for each in silent if _cause(each) == cause)
    share = len(silent) / len(facts.rollouts)
    if share > _OFTEN / 2:
        yield Note(
            "unscored",
            f"{len(silent)} of {len(facts.rollouts)} rollouts could not be scored: {cause}",
            "nothing is learned from them; mend what breaks",
            _named(facts, shown),
            is_grave=share >= _HALF,
        )


def _cause(rollout: Rollout) -> str:
    reasons = [each.verdict.reason for each in rollout.judgements if each.verdict.score is None]
    return reasons[0] if reasons else f"{rollout.ending.value}: {rollout.detail}"


def _audited(facts: Facts) -> Iterator[Note]:
    """Grave where the fault is in what is rewarded. A reward that is partly constant still
    teaches, so that a constant is grave only where all of it is."""
    constant = {each.measure for each in facts.findings if each.fault is Fault.CONSTANT}
    for each in facts.findings:
        counts = each.measure in facts.rewarded and each.is_grave
        if each.fault is Fault.CONSTANT:
            counts = bool(facts.rewarded) and facts.rewarded <= constant
        yield Note(
            each.fault.value,
            f"{each.measure} {each.message}",
            ADVICE[each.fault],
            each.rollout,
            is_grave=counts,
        )


def _cut_short(facts: Facts) -> Iterator[Note]:
    played = len(facts.rollouts)
    if facts.rollouts and played < facts.planned:
        yield Note(
            "cut short",
            f"{played} of {facts.planned} rollouts were played in {facts.minutes:g} minutes",
            f"sparring check {facts.environment} --minutes {3 * facts.minutes:g}",
        )


# ---------------------------------------------------------------------- rewards


def _by_rewards(facts: Facts) -> tuple[CheckVerdict, str, list[Note]]:
    planned = facts.live[0]
    scored = [each for each in facts.rollouts if each.reward is not None]
    passed = sum(map(is_passed, scored)) / len(scored)
    told = (
        f"{passed:.0%} of rollouts pass, and {planned.value:.0%} of groups of "
        f"{planned.group_size} will differ ({planned.low:.0%} … {planned.high:.0%} in the first "
        "five steps)"
    )
    dead = [each for each in facts.measures if each.movement is Movement.NEVER_PASSES]
    if dead and (facts.shown or len(dead) < len(facts.measures)):
        return CheckVerdict.NOT_AS_IT_IS, _never_passes(facts, dead), []
    if planned.value >= _ENOUGH_LIVE:
        return CheckVerdict.LEARNABLE, told + _but_for(facts.measures), []
    rewards = [each.reward for each in facts.rollouts if each.reward is not None]
    low, high = min(rewards), max(rewards)
    if low == high and 0 < low < 1:
        why = f"every rollout gets the reward {low:g}: there is nothing to tell them apart by"
        return CheckVerdict.CONSTANT, why, []
    notes = [*_larger_groups(facts)]
    if passed >= _HALF:
        notes.insert(0, Note("too easy", told, "take harder cases: those it fails now and then"))
        return CheckVerdict.TOO_EASY, told, notes
    why = _never_passes(facts, dead) if dead else told
    notes.insert(0, Note("too hard", told, _way_in(facts)))
    return CheckVerdict.TOO_HARD, why, notes


def _but_for(measures: Sequence[MeasureVerdict]) -> str:
    """What cannot move is named, though the rest can be learned."""
    still = [str(each) for each in measures if each.movement is not Movement.CAN_BE_LEARNED]
    return f"; but {', and '.join(still)}" if still else ""


def _never_passes(facts: Facts, dead: Sequence[MeasureVerdict]) -> str:
    """Which measures, because of what, and the command that helps."""
    names = ", and ".join(map(str, dead))
    if _called(facts) < _RARELY_CALLED and facts.has_tools:
        because = ", because no tool is ever called"
    else:
        because = f" (most often: {dead[0].why[:_SHORT]})" if dead[0].why else ""
    return f"{names}{because}. {_way_in(facts)}"


def _larger_groups(facts: Facts) -> Iterator[Note]:
    """Where groups of another size would differ often enough."""
    planned = facts.live[0]
    larger = [each for each in facts.live[1:] if each.group_size > planned.group_size]
    enough = [each for each in larger if each.value >= _ENOUGH_LIVE]
    if enough:
        first = min(enough, key=lambda each: each.group_size)
        yield Note(
            "group size",
            f"groups of {first.group_size} would differ {first.value:.0%} of the time",
            f"set num_generations={first.group_size}",
        )


def _way_in(facts: Facts) -> str:
    """What to do where nothing passes, as a command where there is one."""
    name = facts.environment
    if facts.shown:
        return (
            f"{facts.shown}: start from them: sparring train {name} --warm-start "
            f"{facts.demonstrations}"
        )
    teachers = [each for each in facts.others if each.correct]
    if teachers:
        best = max(teachers, key=lambda each: each.accuracy or 0.0)
        return (
            f"{best.name} does pass: start from its rollouts: sparring train {name} --warm-start "
            f"{facts.run}"
        )
    if facts.has_tools and _called(facts) < _RARELY_CALLED:
        shown = _worked_calls(facts.rollouts)
        more = f"{shown + 1} worked calls before each case instead of {shown}" if shown else (
            "two worked calls before each case"
        )  # fmt: skip
        first = f"Show {more}, with other values"
    else:
        first = "Begin with easier cases, or show worked examples"
    return f"{first}; or start from demonstrations: sparring train {name} --warm-start DEMOS.jsonl"


def _worked_calls(rollouts: Sequence[Rollout]) -> int:
    """Tool calls that a case brings along."""
    given = rollouts[0].case.input
    if isinstance(given, str):
        return 0
    return sum(each.get("type") == "function_call" for each in given)


def _called(facts: Facts) -> float:
    return sum(bool(each.tool_calls) for each in facts.rollouts) / max(1, len(facts.rollouts))


# ---------------------------------------------------------------------- besides


def _of_tools(facts: Facts) -> Iterator[Note]:
    if not facts.has_tools or not facts.rollouts:
        return
    called = _called(facts)
    if called < _RARELY_CALLED:
        yield Note(
            "tools are not called",
            f"{called:.0%} of rollouts call a tool: what is never tried is never learned",
            _way_in(facts),
            _named(facts, facts.rollouts[0]),
        )


def _of_others(facts: Facts) -> Iterator[Note]:
    for other in facts.others:
        if other.message:
            yield Note("another model", f"{other.name}: {other.message}")
    asked = [each for each in facts.others if each.accuracy is not None]
    solving = [each for each in asked if each.solves]
    if solving:
        best = max(solving, key=lambda each: each.accuracy or 0.0)
        yield Note(
            "a teacher",
            f"{best.name} solves {best.accuracy:.0%} of its rollouts, so that a warm start has a "
            "teacher",
        )
    elif asked:
        yield Note(
            "no teacher",
            "no other model solves it either: " + ", ".join(_told(each) for each in asked),
            "see whether the measures, or the tools, are in the way",
        )


def _told(model: PlayedModel) -> str:
    return f"{model.name} {model.accuracy:.0%}"


def _named(facts: Facts, rollout: Rollout) -> str:
    return f"{facts.log}/{rollout.id}"
