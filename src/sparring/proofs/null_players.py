"""Null players: players without a model, which give a fixed answer to a case.

Two of them give the expected answer, which a sound measure passes. It fails the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.cases import Case, examples_before, question_of
from sparring.contracts.rollouts import Ending, Message, Rollout, RolloutKey

# Of a case, all cases, and the answers of the agent's worked examples.
Answer = Callable[[Case, Sequence[Case], Sequence[str]], str | None]
_WORD = re.compile(r"\w+")
_ONE_WORD = re.compile(r"[A-Za-z0-9]([^\s]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class NullPlayer:
    """A player without a model. `says` describes its answer; `knows` marks the two players that
    give the expected answer."""

    name: str
    says: str
    answer: Answer
    knows: bool = False


def _as_text(expected: Any) -> str | None:
    if expected is None or isinstance(expected, str):
        return expected
    return json.dumps(expected, default=repr)


def _in_a_sentence(case: Case, *_: Any) -> str | None:
    text = _as_text(case.expected)
    return None if text is None else f"The answer is {text}."


def _hollow(case: Case, *_: Any) -> str | None:
    """Return the shape of the expected answer without its content."""
    if case.expected is None:
        return None
    value = case.expected
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return _WORD.sub("", value).strip() or "Answer:"
    if isinstance(value, dict | list):
        return json.dumps(_emptied(value))
    return "Answer:"


def _emptied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _emptied(each) for name, each in value.items()}
    if isinstance(value, list):
        return []
    return {str: "", bool: False, int: 0, float: 0.0}.get(type(value))


def _answer_to_another(case: Case, all_cases: Sequence[Case], *_: Any) -> str | None:
    """Return the expected answer of another case."""
    for other in all_cases:
        if other.expected is not None and other.expected != case.expected:
            return _as_text(other.expected)
    return None


def _in_noise(case: Case, *_: Any) -> str | None:
    """Return the expected value inside a longer word, where it means something else."""
    text = _as_text(case.expected)
    if not text or not _ONE_WORD.fullmatch(text):  # other text is not one word
        return None
    fill = "9" if text[-1].isdigit() else "qx"
    return f"{fill}{text}{fill}"


def example_answers(items: Sequence[Any]) -> list[str]:
    """Return the final answers of worked examples: the last text of the assistant before each next
    message of the user, and at the end."""
    answers: list[str] = []
    last = ""
    for item in [*items, {"role": "user"}]:
        if item.get("role") == "assistant" and isinstance(item.get("content"), str):
            last = item["content"]
        elif item.get("role") == "user":
            answers += [last] if last else []
            last = ""
    return answers


def _first_example(case: Case, _: Sequence[Case], shown: Sequence[str]) -> str | None:
    return next(iter([*shown, *example_answers(examples_before(case))]), None)


def _last_example(case: Case, _: Sequence[Case], shown: Sequence[str]) -> str | None:
    """Return the answer of the last worked example; None if there is only one."""
    answers = [*shown, *example_answers(examples_before(case))]
    return answers[-1] if len(answers) > 1 else None


PLAYERS: tuple[NullPlayer, ...] = (
    NullPlayer("empty", "an empty answer", lambda *_: ""),
    NullPlayer("question", "the question repeated", lambda case, *_: question_of(case)),
    NullPlayer("fixed", "a fixed string", lambda *_: "Hello."),
    NullPlayer("unsure", "“I don't know”", lambda *_: "I don't know."),
    NullPlayer("hollow", "the format of the answer without its content", _hollow),
    NullPlayer("another", "the right answer to another case", _answer_to_another),
    NullPlayer("noise", "the expected value hidden in noise", _in_noise),
    NullPlayer("example", "the answer of its first worked example", _first_example),
    NullPlayer("last-example", "the answer of its last worked example", _last_example),
    NullPlayer(
        "expected", "the expected answer", lambda case, *_: _as_text(case.expected), knows=True
    ),
    NullPlayer("sentence", "the expected answer in a sentence", _in_a_sentence, knows=True),
)


def answer_of(
    player: NullPlayer, case: Case, all_cases: Sequence[Case], shown: Sequence[str] = ()
) -> str | None:
    """Return a player's answer to a case; None if there is none, or if it is right by chance.
    `shown` are the answers of the agent's worked examples."""
    answer = player.answer(case, all_cases, shown)
    if answer is None or player.knows:
        return answer
    is_correct = answer.strip() == (_as_text(case.expected) or "").strip()
    return None if is_correct and case.expected is not None else answer


def null_rollout(number: int, case: Case, answer: str, world: Any = None) -> Rollout:
    """Return a rollout of the player at index `number` of `PLAYERS`; the index is the step of its
    key."""
    messages = (
        Message("user", question_of(case)),
        Message("assistant", answer, agent=PLAYERS[number].name),
    )
    key = RolloutKey(0, number, case.id, 0)
    return Rollout(
        key, case, Ending.ANSWERED, answer, messages, turns=1, world=world, output=answer
    )
