"""Waiting for a lockstep batch does not count against a deadline. The clock here is virtual."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest

from sparring.contracts.cases import Case
from sparring.contracts.policies import ParsedCall, Reply
from sparring.contracts.rollouts import (
    CallFailure,
    Ending,
    Message,
    RequestedCall,
    Rollout,
    RolloutKey,
    TokenUse,
)
from sparring.contracts.specs import Limits
from sparring.player.episode import Deadlines, Episode, EpisodeOver


class VirtualTime(asyncio.SelectorEventLoop):
    """A loop that jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__()
        selector: Any = self._selector  # type: ignore[attr-defined]
        select = selector.select

        def jump(timeout: float | None) -> Any:
            self._now += timeout or 0.0
            return select(0)

        selector.select = jump

    def time(self) -> float:
        return self._now


def played(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        return runner.run(work)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_work_within_its_deadline_is_left_alone() -> None:
    async def work() -> bool:
        async with Deadlines().within(10) as deadline:
            await asyncio.sleep(9)
        return deadline.expired()

    assert played(work()) is False


def test_work_that_takes_too_long_ends_at_its_deadline_and_the_timeout_knows() -> None:
    async def work() -> tuple[bool, float]:
        with pytest.raises(TimeoutError):
            async with Deadlines().within(10) as deadline:
                await asyncio.sleep(60)
        return deadline.expired(), now()

    expired, ended = played(work())
    assert expired
    assert ended == pytest.approx(10)


def test_a_pause_of_any_length_leaves_the_remaining_time_as_it_was() -> None:
    async def work() -> float:
        deadlines = Deadlines()
        try:
            async with deadlines.within(10):
                await asyncio.sleep(4)
                with deadlines.paused():
                    await asyncio.sleep(1000)
                await asyncio.sleep(60)
        except TimeoutError:
            return now()
        return 0.0

    assert played(work()) == pytest.approx(1010)


def test_a_pause_suspends_all_open_deadlines() -> None:
    async def work() -> tuple[bool, bool, float]:
        deadlines = Deadlines()
        with contextlib.suppress(TimeoutError):
            async with deadlines.within(10) as outer, deadlines.within(5) as inner:
                with deadlines.paused():
                    await asyncio.sleep(100)
                await asyncio.sleep(60)
        return outer.expired(), inner.expired(), now()

    outer, inner, ended = played(work())
    assert (outer, inner) == (False, True)
    assert ended == pytest.approx(105)


def test_a_deadline_that_was_left_during_a_pause_is_not_set_again() -> None:
    async def work() -> bool:
        deadlines = Deadlines()
        async with deadlines.within(5) as deadline:
            pause = deadlines.paused()
            pause.__enter__()
        pause.__exit__(None, None, None)
        await asyncio.sleep(100)
        return deadline.expired()

    assert played(work()) is False


def test_pauses_that_overlap_end_with_the_last_of_them() -> None:
    """Two agents of one rollout wait for batches: one from 0 to 8, the other from 4 to 40."""
    deadlines = Deadlines()

    async def wait(start: float, end: float) -> None:
        await asyncio.sleep(start)
        with deadlines.paused():
            await asyncio.sleep(end - start)

    async def work() -> float:
        with contextlib.suppress(TimeoutError):
            async with deadlines.within(10):
                await asyncio.gather(wait(0, 8), wait(4, 40))
                await asyncio.sleep(60)
        return now()

    assert played(work()) == pytest.approx(50)


CALL = Reply("", calls=(ParsedCall("add", '{"a": 1}'),))


def episode(**limits: int) -> Episode:
    return Episode(RolloutKey(0, 0, "c", 0), Case("c", "question"), Limits(**limits))


def reply(played: Episode, answer: Reply) -> list[RequestedCall]:
    return played.add_reply(answer, played.begin_turn())


def finish(played: Episode) -> Rollout:
    return played.finish([], None, None)


def test_turns_are_numbered_and_seeded_one_after_the_other() -> None:
    played = episode()
    turns = [played.begin_turn() for _ in range(3)]
    assert [turn.number for turn in turns] == [turn.key.turn for turn in turns] == [0, 1, 2]


def test_a_turn_counts_once_it_has_a_reply() -> None:
    played = episode()
    reply(played, CALL)
    played.begin_turn()  # which a used-up budget ends
    assert finish(played).turns == 1


def test_calls_of_all_turns_have_ids_of_their_own() -> None:
    played = episode()
    twice = Reply("", calls=CALL.calls * 2)
    ids = [call.id for _ in range(3) for call in reply(played, twice)]
    assert len(set(ids)) == 6
    assert [call.id for call in finish(played).tool_calls] == ids


def test_a_used_up_budget_ends_the_rollout_and_says_what_tools_took() -> None:
    played = episode(completion_tokens=100)
    played.spent = 60
    assert played.tokens_left() == 40
    played.count_tokens(prompt=7, sampled=30)
    played.spent = 100
    with pytest.raises(EpisodeOver):
        played.tokens_left()
    rollout = finish(played)
    assert rollout.ending is Ending.TOKEN_BUDGET
    assert rollout.detail == (
        "the budget of 100 tokens is used up, 70 of them not sampled (tool results, user messages)"
    )
    assert rollout.tokens == TokenUse(7, 30)


def test_a_result_that_the_model_reads_belongs_to_its_call() -> None:
    played = episode()
    played.agent = "clerk"
    (call,) = reply(played, CALL)
    played.add_messages([Message("tool", "3", call_id=call.id)])
    rollout = finish(played)
    assert rollout.tool_calls[0].result == "3"
    assert rollout.messages[-1] == Message("tool", "3", "clerk", call_id=call.id)


def test_the_last_reply_outside_of_a_nested_run_is_the_answer() -> None:
    played = episode()
    reply(played, Reply("mine"))
    with contextlib.suppress(RuntimeError), played.nested_call():
        reply(played, Reply("of a nested agent"))
        raise RuntimeError
    assert finish(played).answer == "mine"
    reply(played, Reply("mine again"))
    assert finish(played).answer == "mine again"


def test_a_refused_call_keeps_its_reason() -> None:
    played = episode()
    first, second = reply(played, Reply("", calls=CALL.calls * 2))
    played.refuse_calls([second], "one at a time")
    assert played.refusal_of(first.id) is None
    assert played.refusal_of(second.id) == "one at a time"
    assert [call.failure for call in finish(played).tool_calls] == [None, CallFailure.REFUSED]


def test_notes_about_an_unknown_call_are_ignored() -> None:
    played = episode()
    played.note_result("nobody", "3")
    played.note_failure("nobody", CallFailure.RAISED)
    assert played.tool_of("nobody") == ""
    assert finish(played).tool_calls == ()


def test_only_the_first_ending_counts() -> None:
    played = episode()
    assert not played.is_over
    played.end(Ending.TOKEN_BUDGET, "first")
    played.end(Ending.INFRASTRUCTURE_ERROR, "second")
    assert played.is_over
    assert (finish(played).ending, finish(played).detail) == (Ending.TOKEN_BUDGET, "first")


def test_a_rollout_without_an_ending_was_answered() -> None:
    assert finish(episode()).ending is Ending.ANSWERED


@pytest.mark.parametrize(
    ("failures", "ending"),
    [
        ([CallFailure.UNKNOWN_TOOL, CallFailure.UNKNOWN_TOOL], Ending.UNKNOWN_TOOL),
        ([CallFailure.DEADLINE, CallFailure.DEADLINE], Ending.TOOL_DEADLINE),
        ([CallFailure.DEADLINE, CallFailure.UNKNOWN_TOOL], Ending.TURN_LIMIT),
        ([CallFailure.UNKNOWN_TOOL, None], Ending.TURN_LIMIT),
        ([CallFailure.RAISED], Ending.TURN_LIMIT),
        ([], Ending.TURN_LIMIT),
    ],
)
def test_a_turn_limit_is_named_after_the_one_failure_that_all_calls_share(
    failures: list[CallFailure | None], ending: Ending
) -> None:
    played = episode()
    for failure in failures:
        (call,) = reply(played, CALL)
        played.note_result(call.id, "some result")
        if failure is not None:
            played.note_failure(call.id, failure)
    played.end(Ending.TURN_LIMIT)
    assert finish(played).ending is ending
