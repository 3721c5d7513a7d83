"""Which call repeats another one, and gets its reply."""

import asyncio
from dataclasses import replace

import pytest

from sparring.contracts.rollouts import Message
from sparring.gateway.calls import FinishReason, ModelReply, Refused
from sparring.gateway.exchanges import Exchange
from sparring.player.recorder import ModelCall

CALL = ModelCall((Message("user", "hello"),))
REPLY = ModelReply(0, "hi", "", (), FinishReason.STOP, 1, 1)


def exchange(work=None, **options):
    """An exchange whose task is done, unless the work waits."""

    async def answer():
        return REPLY if work is None else await work()

    async def start():
        task = asyncio.create_task(answer())
        await asyncio.wait([task], timeout=0.01)
        made = Exchange(0, task, **options)
        state = made.answers(CALL)
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        return made, state

    return asyncio.run(start())


async def fail():
    raise Refused(400, "no")


async def wait():
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("work", "options", "is_repeat"),
    [
        (wait, {}, True),
        (None, {}, True),
        (None, {"is_delivered": True}, False),
        (fail, {}, False),
    ],
    ids=["pending", "not delivered", "delivered", "failed"],
)
def test_an_equal_call_repeats_one_that_is_pending_or_was_not_delivered(work, options, is_repeat):
    _, state = exchange(work, **options)
    assert state is is_repeat


def test_a_call_that_its_client_marks_as_a_retry_repeats_a_delivered_one():
    done, _ = exchange(is_delivered=True, retry_keys=frozenset({"k"}))
    assert done.answers(replace(CALL, is_retry=True))
    assert done.answers(replace(CALL, retry_key="k"))
    assert not done.answers(replace(CALL, retry_key="other"))


def test_a_reply_is_that_of_the_task():
    done, _ = exchange()
    assert done.reply() is REPLY
    failed, _ = exchange(fail)
    with pytest.raises(Refused, match="no"):
        failed.reply()


def test_a_cancelled_call_has_no_reply_because_its_rollout_ended():
    cancelled, _ = exchange(wait)
    with pytest.raises(Refused, match="this rollout has ended") as caught:
        cancelled.reply()
    assert caught.value.status == 410
    assert not cancelled.answers(CALL)
