"""Reads demonstrations from a file or from another run's rollouts, and plays them.

The player runs the agent on each case with the demonstrated turns in place of the model's, and
calls the tools. The rows therefore contain the agent's instructions and tool schemas. The measures
judge the outcome, and only demonstrations that pass are learned from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from sparring.contracts.cases import Case, Split
from sparring.contracts.errors import InvalidInput
from sparring.contracts.policies import SampleRequest
from sparring.contracts.rollouts import Ending, Message, RequestedCall, Rollout, RolloutKey
from sparring.learning.engine import Launched
from sparring.learning.rollout_collector import Plays, play_and_judge
from sparring.measures import MeasureSet
from sparring.player import Play, Played
from sparring.policies.scripted_policy import Script
from sparring.run_folder import RunFolder
from sparring.run_folder.layout import NULL_PLAYERS
from sparring.run_folder.records import from_record
from sparring.run_folder.sharded_log import ShardedLog
from sparring.suites import Suite
from sparring.suites.splitting import question_digest
from sparring.threads import run_in_own_loop

# Runs a coroutine to its end. A training passes the loop of its steps, because measures and tools
# may keep clients that are bound to their first loop.
RunLoop: TypeAlias = Callable[[Coroutine[Any, Any, list[Played]]], list[Played]]
_EMPTY_TURN = Message("assistant", "")
_LARGE_BUDGET = 1 << 15  # tokens


@dataclass(frozen=True, slots=True)
class Demonstration:
    """The assistant turns of one conversation on a case."""

    case: Case
    turns: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The usable demonstrations of a source, and the number of the others by reason."""

    demonstrations: tuple[Demonstration, ...]
    left_out: Mapping[str, int]


class KnownCases:
    """Finds training cases for demonstrations, and excludes questions of the other splits.

    Inputs are compared by their last question, because a case may contain worked examples that an
    exported conversation lacks.
    """

    def __init__(self, suite: Suite) -> None:
        self._by_id = {case.id: case for case in suite.cases(Split.TRAINING)}
        self._by_question = {question_digest(case.input): case for case in self._by_id.values()}
        other_splits = (Split.VALIDATION, Split.HELD_OUT)
        held_back = frozenset[str]().union(*map(suite.question_digests, other_splits))
        self._held_back = held_back - self._by_question.keys()

    def find(self, case_id: str) -> Case | None:
        """Return the training case with this id; None if there is none."""
        return self._by_id.get(case_id)

    def for_input(self, given: Any, expected: Any) -> Case | None:
        """Return the training case with the question of `given`, or a new case.

        Returns None if only validation or held-out cases have this question.
        """
        digest = question_digest(given)
        if digest in self._held_back:
            return None
        return self._by_question.get(digest) or Case(f"demonstration-{digest}", given, expected)


def from_file(path: Path, cases: KnownCases) -> Found:
    """Read JSONL in the chat format: `messages`, and optionally `input` and `expected`.

    System and tool messages are ignored, because the agent's own instructions are used and its
    tools are called.
    """
    demonstrations, held_back = [], 0
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        where = f"{path.name}, line {number}"
        record = _record(line, where)
        messages = record["messages"]
        case_input = record["input"] if "input" in record else _question(messages, where)
        case = cases.for_input(case_input, record.get("expected"))
        if case is None:
            held_back += 1
            continue
        replies = [message for message in messages if message.get("role") == "assistant"]
        if not replies:
            raise InvalidInput(f"{where}: there is no assistant message to learn from")
        turns = tuple(_turn(message, where) for message in replies)
        demonstrations.append(Demonstration(case, turns))
    return Found(_without_duplicates(demonstrations), _counts(held_back_for_judging=held_back))


def from_run(folder: RunFolder, cases: KnownCases) -> Found:
    """Return the rollouts of a run as demonstrations, whatever policy played them. A rollout must
    be on a training case, and pass every measure that could judge it."""
    demonstrations, not_training, failed = [], 0, 0
    log = ShardedLog([each for each in folder.rollout_logs() if each.name != NULL_PLAYERS])
    for record in log.records(0, len(log)):
        rollout = from_record(record)
        passed = [each.is_correct for each in rollout.judgements if each.is_correct is not None]
        if not passed or not all(passed):
            failed += 1
            continue
        case = cases.find(rollout.case.id)
        if case is None:
            not_training += 1
            continue
        turns = tuple(each for each in rollout.messages if each.role == "assistant")
        # The case's worked examples are assistant messages too, before the model's turns.
        demonstrations.append(Demonstration(case, turns[len(turns) - rollout.turns :]))
    return Found(
        _without_duplicates(demonstrations),
        _counts(did_not_pass=failed, not_on_training_cases=not_training),
    )


def render(
    player_of: Callable[[Script], Plays],
    measures: MeasureSet,
    demonstrations: Sequence[Demonstration],
    launched: Launched,
    run: RunLoop = run_in_own_loop,
) -> list[Played]:
    """Play and judge this rank's share of the demonstrations."""
    player = player_of(_script(demonstrations))
    plays = [
        Play(RolloutKey(0, 0, each.case.id, number), each.case)
        for number, each in enumerate(demonstrations)
        if number % launched.world_size == launched.rank
    ]
    return run(play_and_judge(player, measures, plays))


@dataclass(frozen=True, slots=True)
class TriedDemonstrations:
    """The result of playing demonstrations before a warm start.

    `problem` is the reason of the first failure. `needed` is the token budget that fits all
    truncated demonstrations; 0 if none was truncated, or if 32,768 tokens do not fit one.
    """

    total: int
    passed: int
    problem: str = ""
    needed: int = 0

    def __str__(self) -> str:
        text = f"{self.passed} of {self.total} pass"
        if self.problem:
            text += f"; the first failure: {self.problem}"
        if self.needed:
            text += f"; max_completion_length={self.needed} fits all of them"
        return text


def try_demonstrations(
    player_of: Callable[[Script, int | None], Plays],
    measures: MeasureSet,
    demonstrations: Sequence[Demonstration],
    run: RunLoop = run_in_own_loop,
) -> TriedDemonstrations:
    """Play all demonstrations, and the truncated ones again with a large token budget.

    `player_of` returns a player for a script and a token budget; None means the budget in the
    settings.
    """
    everything = Launched(0, 1)
    played = render(
        lambda script: player_of(script, None), measures, demonstrations, everything, run
    )
    failed = [(each.rollout, problem) for each in played if (problem := problem_of(each.rollout))]
    truncated = [demonstrations[rollout.key.index] for rollout, _ in failed if rollout.is_truncated]
    needed = 0
    if truncated:
        complete = render(
            lambda script: player_of(script, _LARGE_BUDGET), measures, truncated, everything, run
        )
        if not any(each.rollout.is_truncated for each in complete):
            needed = max(completion_tokens(each.rollout) for each in complete)
    first_problem = failed[0][1] if failed else ""
    return TriedDemonstrations(len(played), len(played) - len(failed), first_problem, needed)


def completion_tokens(rollout: Rollout) -> int:
    """Return the number of tokens that count against a rollout's budget: those after the prompt of
    each row, including tool results."""
    return sum(len(row.ids) - row.spans[0].length for row in rollout.rows)


def problem_of(rollout: Rollout) -> str:
    """Return why a demonstration is not learned from; empty if it ended with an answer and
    passed."""
    if rollout.ending is not Ending.ANSWERED:
        return f"{rollout.ending.value}: {rollout.detail}"
    failures = [each.verdict.reason for each in rollout.judgements if each.is_correct is False]
    if failures:
        return failures[0]
    if any(each.is_correct for each in rollout.judgements):
        return ""
    reasons = [each.verdict.reason for each in rollout.judgements]
    return f"no measure could judge it: {reasons[0] if reasons else 'there are no measures'}"


def _script(demonstrations: Sequence[Demonstration]) -> Script:
    """Return a script that replays demonstration `n` in the rollout with index `n`."""

    def reply(request: SampleRequest) -> str | Message:
        turns = demonstrations[request.key.rollout.index].turns
        return turns[request.key.turn] if request.key.turn < len(turns) else _EMPTY_TURN

    return reply


def _without_duplicates(demonstrations: Iterable[Demonstration]) -> tuple[Demonstration, ...]:
    """Remove demonstrations with the same case and turns: repeats would outweigh other cases."""
    seen: dict[tuple[Any, ...], Demonstration] = {}
    for each in demonstrations:
        turns = tuple(
            (turn.content, *((call.tool, call.arguments) for call in turn.calls))
            for turn in each.turns
        )
        seen.setdefault((each.case.id, turns), each)
    return tuple(seen.values())


def _counts(**by_reason: int) -> dict[str, int]:
    return {reason.replace("_", " "): count for reason, count in by_reason.items() if count}


def _lines(path: Path) -> list[str]:
    """Split a file at line ends. `str.splitlines` would also split at U+2028, which may occur in a
    JSON string."""
    try:
        return path.read_text(encoding="utf-8-sig").split("\n")
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
    questions = [message.get("content") for message in messages if message.get("role") == "user"]
    if len(questions) != 1:
        raise InvalidInput(
            f"{where}: {len(questions)} user messages; a demonstration needs exactly one, or the "
            "whole input in `input`"
        )
    return questions[0]


def _turn(message: Mapping[str, Any], where: str) -> Message:
    calls = tuple(_calls(message.get("tool_calls") or [], where))
    content, thinking = message.get("content") or "", message.get("reasoning_content") or ""
    if not isinstance(content, str) or not isinstance(thinking, str):
        raise InvalidInput(f"{where}: the content of a message must be text")
    return Message("assistant", content, thinking=thinking, calls=calls)


def _calls(calls: Any, where: str) -> Iterator[RequestedCall]:
    for number, call in enumerate(calls if isinstance(calls, list) else [calls]):
        function = call.get("function", call) if isinstance(call, dict) else {}
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str):
            raise InvalidInput(f"{where}: a tool call has no function name")
        arguments = function.get("arguments", {})
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        yield RequestedCall(str(number), name, text)
