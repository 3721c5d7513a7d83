"""The headline of a check says what is in the way, and the command that helps."""

from __future__ import annotations

from typing import Any

import pytest

from sparring.contracts.rollouts import Ending
from sparring.contracts.summaries import (
    CheckVerdict,
    LiveShare,
    MeasureVerdict,
    Movement,
    PlayedModel,
)
from sparring.contracts.verdicts import Judgement, scored
from sparring.proofs.check_verdict import Facts, judge
from tests.rollouts import rollout

NEVER = MeasureVerdict("right_queue", Movement.NEVER_PASSES, 16, 0, 0.0)


def rambling(**facts: Any) -> Facts:
    """A model that never calls its tool, and talks until its tokens are used up."""
    played = [rollout("so …", index=n, ending=Ending.TOKEN_BUDGET, reward=0.0) for n in range(16)]
    given: dict[str, Any] = {
        "environment": "triage", "planned": 16, "measures": [NEVER], "rollouts": played,
        "live": [LiveShare(8, 0.0, 0.0, 0.1)], "completion_length": 80, "has_tools": True,
        "rewarded": frozenset({"right_queue"}),
    }  # fmt: skip
    return Facts(**given | facts)


def test_a_model_that_talks_on_is_shown_how_to_call_before_it_gets_more_tokens():
    checked = judge(rambling())
    assert checked.verdict is CheckVerdict.BROKEN
    assert checked.why.startswith("none of 16 rollouts call a tool, and 16 of 16 rollouts are cut")
    advice = next(note.advice for note in checked.notes if note.what == "truncated")
    assert advice.startswith("Show two worked examples with calls (`examples`)")
    assert "--warm-start DEMOS.jsonl" in advice


def test_where_it_answers_with_tools_more_tokens_are_what_helps():
    played = [
        rollout("so …", index=n, ending=Ending.TOKEN_BUDGET, reward=0.0, tools=["lookup"])
        for n in range(16)
    ]
    checked = judge(rambling(rollouts=played))
    advice = next(note.advice for note in checked.notes if note.what == "truncated")
    assert advice == (
        "raise max_completion_length to 320, or ask for short answers in the instructions"
    )


def test_demonstrations_that_pass_are_the_way_on_whatever_the_base_model_does():
    shown = "27 of 40 demonstrations pass"
    checked = judge(rambling(demonstrations="demos.jsonl", shown=shown))
    assert checked.verdict is CheckVerdict.NOT_AS_IT_IS
    assert checked.why == (
        "right_queue never passes, because tools are hardly ever called. 27 of 40 demonstrations "
        "pass; start from them: `sparring train triage --warm-start demos.jsonl`"
    )


def test_calls_that_are_written_as_text_are_named_with_the_format_of_the_family() -> None:
    text = 'Sure: {"name": "lookup", "arguments": {"item": "lamp"}}'
    written = [rollout(text, index=n, reward=0.0) for n in range(16)]
    message = "the family qwen2.5 reads calls as <tool_call>…</tool_call>"
    checked = judge(rambling(rollouts=written, call_format=message))
    note = next(each for each in checked.notes if each.what == "calls without tags")
    assert note.message == (
        "16 of 16 rollouts answer with a tool call as text instead of calling it: "
        f"{text}; {message}"
    )
    called = [rollout(text, index=n, reward=0.0, tools=["lookup"]) for n in range(16)]
    assert "calls without tags" not in {
        each.what for each in judge(rambling(rollouts=called)).notes
    }


def test_a_measure_that_nearly_everything_passes_gets_advice() -> None:
    kept = MeasureVerdict("kept_the_rule", Movement.ALREADY_PASSED, 64, 64, 0.0)
    played = [rollout("so …", index=n, reward=float(n % 2)) for n in range(16)]
    learnable = MeasureVerdict("right", Movement.CAN_BE_LEARNED, 64, 9, 0.5)
    live = [LiveShare(8, 0.5, 0.4, 0.6)]
    both = rambling(rollouts=played, measures=[kept, learnable], live=live)
    note = next(each for each in judge(both).notes if each.what == "already passed")
    assert note.message == (
        "kept_the_rule already passes (64 of 64 rollouts), so its share of the reward is given for "
        "nothing"
    )
    assert note.advice.startswith("give it weight 0")
    alone = rambling(rollouts=played, measures=[kept], live=live)
    assert "already passed" not in {each.what for each in judge(alone).notes}


@pytest.mark.parametrize("ending", [Ending.UNPARSABLE_CALL, Ending.UNKNOWN_TOOL])
def test_calls_that_cannot_be_read_do_not_matter_where_demonstrations_pass(ending: Ending) -> None:
    unreadable = [rollout("x", reward=0.0, ending=ending) for _ in range(16)]
    assert judge(rambling(rollouts=unreadable)).verdict is CheckVerdict.BROKEN
    shown = judge(rambling(rollouts=unreadable, shown="40 of 40 demonstrations pass"))
    assert shown.verdict is not CheckVerdict.BROKEN
    note = next(each for each in shown.notes if each.what == "calls cannot be read")
    assert note.advice.startswith("nothing to do")


@pytest.mark.parametrize(
    ("reward", "verdict"), [(0.0, CheckVerdict.TOO_HARD), (1.0, CheckVerdict.TOO_EASY)]
)
def test_a_guess_of_live_groups_is_not_enough_where_no_group_differs(reward, verdict):
    played = [
        rollout("so …", index=n, tools=["lookup"], reward=reward,
                judgements=(Judgement("right_queue", scored(reward, "so"), 1.0),))
        for n in range(8)
    ]  # fmt: skip
    guessed = [LiveShare(8, 0.22, 0.0, 0.6)]
    checked = judge(rambling(rollouts=played, live=guessed, measures=[NEVER] if not reward else []))
    assert checked.verdict is verdict


def test_a_teacher_is_missing_only_where_nobody_passes_anything():
    def other(accuracy: float) -> PlayedModel:
        return PlayedModel("big", "log", 4, 16, 0, int(16 * accuracy), accuracy, accuracy, 0.0, 1.0)

    def notes(accuracy: float) -> list[str]:
        checked = judge(rambling(others=[other(accuracy)]))
        return [each.message for each in checked.notes if each.what == "no teacher"]

    assert notes(0.0) == ["no other model passes a rollout, either: big"]
    assert notes(0.4) == []
