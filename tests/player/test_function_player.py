"""Rollouts by a function of the user's: under a deadline that stands still in a batch."""

import asyncio
from inspect import getattr_static

from sparring.contracts.cases import Case
from sparring.contracts.policies import SampleKey, SampleRequest, Sampling
from sparring.contracts.rollouts import Ending, Message, Rollout, RolloutKey
from sparring.contracts.specs import Limits
from sparring.player import Play
from sparring.player.function_player import FunctionPlayer
from sparring.policies.scripted_policy import ScriptedPolicy


class Slow(ScriptedPolicy):
    """A lockstep batch that takes longer than a rollout may."""

    samples_in_lockstep = True

    async def sample(self, request):
        await asyncio.sleep(0.3)
        return await super().sample(request)


async def answer(play, policy):
    prompt = policy.codec.encode_prompt([Message("user", "?")], []).ids
    request = SampleRequest(SampleKey(play.key, 0), prompt, Sampling(max_tokens=8))
    sample = await policy.sample(request)
    return Rollout(play.key, play.case, Ending.ANSWERED, policy.codec.parse(sample.ids).content)


async def sleep(play, policy):
    await asyncio.sleep(30)


def played(function, policy):
    player = FunctionPlayer(function, policy, Limits(rollout_timeout=0.2))
    play = Play(RolloutKey(0, 0, "c", 0), Case("c", "?"))

    async def only():
        (each,) = [each.rollout async for each in player.play([play])]
        return each

    return asyncio.run(only())


def test_waiting_for_a_batch_is_not_counted(codecs):
    policy = Slow(lambda _: "fine", codecs["qwen3"])
    assert played(answer, policy).answer == "fine"


def test_a_function_that_hangs_is_ended(codecs):
    policy = Slow(lambda _: "fine", codecs["qwen3"])
    assert played(sleep, policy).ending is Ending.ROLLOUT_DEADLINE


def test_a_timeout_of_its_own_is_an_error_and_not_the_deadline(codecs):
    async def times_out(play, policy):
        raise TimeoutError("the database")

    rollout = played(times_out, Slow(lambda _: "fine", codecs["qwen3"]))
    assert (rollout.ending, rollout.detail) == (
        Ending.INFRASTRUCTURE_ERROR,
        "TimeoutError: the database",
    )


def test_the_policy_of_a_function_has_the_members_of_the_protocol_itself(codecs):
    """From Python 3.12, `isinstance` with a protocol looks them up without `__getattr__`."""

    async def has_members(play, policy):
        members = ("name", "codec", "samples_in_lockstep", "join", "leave", "sample")
        missing = [name for name in members if getattr_static(policy, name, None) is None]
        return Rollout(play.key, play.case, Ending.ANSWERED, f"missing: {missing}")

    policy = Slow(lambda _: "fine", codecs["qwen3"])
    assert played(has_members, policy).answer == "missing: []"
