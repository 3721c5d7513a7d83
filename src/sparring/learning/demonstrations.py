"""Demonstrations: what a model should have said, read from a file or from another's rollouts.

A demonstration is played, not trusted: the player runs the agent on its case, the demonstrated
turns answer for the model, and the tools are really called. So the rows have the agent's own
instructions and tool schemas, and the measures judge what came of it; only what passes is
learned from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.contracts.cases import Case, Split
from sparring.contracts.errors import InvalidInput
from sparring.contracts.policies import SampleRequest
from sparring.contracts.rollouts import Ending, Message, RequestedCall, Rollout, RolloutKey
from sparring.learning.judged_play import Plays, play_and_judge
from sparring.learning.practice import Place
from sparring.measures import MeasureSet
from sparring.player import Play, Played
from sparring.player.loops import run_in_own_loop
from sparring.policies.scripted_policy import Script
from sparring.run_folder import RunFolder
from sparring.run_folder.layout import NULL_PLAYERS
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import GangLog
from sparring.suites import Suite
from sparring.suites.splitting import question_digest

_SILENCE = Message("assistant", "")
_PLENTY = 1 << 15  # tokens


@dataclass(frozen=True, slots=True)
class Demonstration:
    """The turns of one conversation, on a case."""

    case: Case
    turns: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """Demonstrations, and how many there were besides that must not or cannot be used."""

    demonstrations: tuple[Demonstration, ...]
    left_out: Mapping[str, int]


class KnownCases:
    """The training cases, and the questions of all others, which no demonstration may answer.

    Inputs are told apart by their last question: a case may bring worked examples along, and an
    export of a conversation seldom does.
    """

    def __init__(self, suite: Suite) -> None:
        self._by_id = {case.id: case for case in suite.cases(Split.TRAINING)}
        self._by_question = {question_digest(case.input): case for case in self._by_id.values()}
        judging = (Split.VALIDATION, Split.HELD_OUT)
        kept_back = frozenset[str]().union(*map(suite.question_digests, judging))
        self._kept_back = kept_back - self._by_question.keys()

    def find(self, case_id: str) -> Case | None:
        return self._by_id.get(case_id)

    def for_input(self, given: Any, expected: Any) -> Case | None:
        """The case with this question, or one made up; None where it is kept for judging."""
        digest = question_digest(given)
        if digest in self._kept_back:
            return None
        return self._by_question.get(digest) or Case(f"demonstration-{digest}", given, expected)


def from_file(path: Path, cases: KnownCases) -> Found:
    """JSONL in the chat format: `messages` of user, assistant and tool; or `input` and the rest.

    System and tool messages are left out: the agent has instructions of its own, and its tools
    answer for themselves.
    """
    taken, kept_back = [], 0
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        where = f"{path.name}, line {number}"
        record = _record(line, where)
        messages = record["messages"]
        given = record["input"] if "input" in record else _question(messages, where)
        case = cases.for_input(given, record.get("expected"))
        if case is None:
            kept_back += 1
            continue
        said = [message for message in messages if message.get("role") == "assistant"]
        if not said:
            raise InvalidInput(f"{where}: there is no message of the assistant to learn from")
        taken.append(Demonstration(case, tuple(_turn(message, where) for message in said)))
    return Found(_without_doubles(taken), _counts(kept_back_for_judging=kept_back))


def from_run(folder: RunFolder, cases: KnownCases) -> Found:
    """The rollouts of a run that passed everything, on training cases, whoever played them."""
    taken, elsewhere, failed = [], 0, 0
    log = GangLog([each for each in folder.rollout_logs() if each.name != NULL_PLAYERS])
    for record in log.records(0, len(log)):
        rollout = from_record(record)
        told = [each.is_correct for each in rollout.judgements if each.is_correct is not None]
        if not told or not all(told):
            failed += 1
            continue
        case = cases.find(rollout.case.id)
        if case is None:
            elsewhere += 1
            continue
        said = tuple(each for each in rollout.messages if each.role == "assistant")
        # Turns that a case brings along as worked examples stand before the model's own.
        taken.append(Demonstration(case, said[len(said) - rollout.turns :]))
    return Found(
        _without_doubles(taken), _counts(did_not_pass=failed, not_on_training_cases=elsewhere)
    )


def render(
    player_of: Callable[[Script], Plays],
    measures: MeasureSet,
    demonstrations: Sequence[Demonstration],
    place: Place,
) -> list[Played]:
    """Play this rank's share of them, and judge what came of it."""
    player = player_of(_script(demonstrations))
    plays = [
        Play(RolloutKey(0, 0, each.case.id, number), each.case)
        for number, each in enumerate(demonstrations)
        if number % place.world_size == place.rank
    ]
    return run_in_own_loop(play_and_judge(player, measures, plays))


@dataclass(frozen=True, slots=True)
class TriedDemonstrations:
    """What came of playing demonstrations before a warm start. `needed` is the token budget that
    all of them would fit into, 0 where they fit."""

    total: int
    passed: int
    problem: str = ""
    needed: int = 0

    def __str__(self) -> str:
        told = f"{self.passed} of {self.total} pass"
        if self.problem:
            told += f"; the first that does not: {self.problem}"
        if self.needed:
            told += f"; none is cut off at max_completion_length={self.needed}"
        return told


def try_demonstrations(
    player_of: Callable[[Script, int | None], Plays],
    measures: MeasureSet,
    demonstrations: Sequence[Demonstration],
) -> TriedDemonstrations:
    """Play them all, and those that were cut off once more without a limit. `player_of` makes a
    player for a script, within a token budget of its own or that of the settings."""
    played = render(lambda script: player_of(script, None), measures, demonstrations, Place(0, 1))
    wrong = [(each.rollout, found) for each in played if (found := what_is_wrong(each.rollout))]
    cut = [demonstrations[rollout.key.index] for rollout, _ in wrong if rollout.is_truncated]
    needed = 0
    if cut:
        whole = render(lambda script: player_of(script, _PLENTY), measures, cut, Place(0, 1))
        needed = max(completion_tokens(each.rollout) for each in whole)
    problem = wrong[0][1] if wrong else ""
    return TriedDemonstrations(len(played), len(played) - len(wrong), problem, needed)


def completion_tokens(rollout: Rollout) -> int:
    """Tokens behind the first prompt, tool results included."""
    return max((len(row.ids) - row.spans[0].length for row in rollout.rows), default=0)


def what_is_wrong(rollout: Rollout) -> str:
    """Why a demonstration is not learned from; empty where it was answered, and judged right."""
    if rollout.ending is not Ending.ANSWERED:
        return f"{rollout.ending.value}: {rollout.detail}"
    wrong = [each.verdict.reason for each in rollout.judgements if each.is_correct is False]
    if wrong:
        return wrong[0]
    if any(each.is_correct for each in rollout.judgements):
        return ""
    silent = [each.verdict.reason for each in rollout.judgements]
    return f"no measure could judge it: {silent[0] if silent else 'there is none'}"


def _script(demonstrations: Sequence[Demonstration]) -> Script:
    """Answers for the model: the n-th demonstration is the rollout of index n."""

    def said(request: SampleRequest) -> str | Message:
        turns = demonstrations[request.key.rollout.index].turns
        return turns[request.key.turn] if request.key.turn < len(turns) else _SILENCE

    return said


def _without_doubles(given: Iterable[Demonstration]) -> tuple[Demonstration, ...]:
    """Once each: what a policy says again and again would drown the rest."""
    seen: dict[tuple[Any, ...], Demonstration] = {}
    for each in given:
        key = (each.case.id, *((turn.content, *map(_call_key, turn.calls)) for turn in each.turns))
        seen.setdefault(key, each)
    return tuple(seen.values())


def _call_key(call: RequestedCall) -> tuple[str, str]:
    return call.tool, call.arguments


def _counts(**counted: int) -> dict[str, int]:
    return {name.replace("_", " "): count for name, count in counted.items() if count}


def _lines(path: Path) -> list[str]:
    """By line feeds alone: other separators may stand inside of a JSON string."""
    try:
        return path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path.name} is not UTF-8 text: {error}") from error


def _record(line: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{where}: not JSON: {error}") from error
    messages = record.get("messages") if isinstance(record, dict) else None
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        raise InvalidInput(
            f"{where}: a demonstration is an object with a list of `messages` in the chat format"
        )
    return dict(record)


def _question(messages: Sequence[Mapping[str, Any]], where: str) -> Any:
    asked = [message.get("content") for message in messages if message.get("role") == "user"]
    if len(asked) != 1:
        raise InvalidInput(
            f"{where}: {len(asked)} messages of the user; a demonstration answers one question, or "
            "has the whole of it as `input`"
        )
    return asked[0]


def _turn(message: Mapping[str, Any], where: str) -> Message:
    calls = tuple(_calls(message.get("tool_calls") or [], where))
    content, thinking = message.get("content") or "", message.get("reasoning_content") or ""
    if not isinstance(content, str) or not isinstance(thinking, str):
        raise InvalidInput(f"{where}: the content of a message must be text")
    return Message("assistant", content, thinking=thinking, calls=calls)


def _calls(given: Any, where: str) -> Iterator[RequestedCall]:
    for number, call in enumerate(given if isinstance(given, list) else [given]):
        function = call.get("function", call) if isinstance(call, dict) else {}
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str):
            raise InvalidInput(f"{where}: a tool call needs a name and arguments")
        arguments = function.get("arguments", {})
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        yield RequestedCall(str(number), name, text)
