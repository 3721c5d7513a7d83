"""Policies: the seeds of samples, and which policies are played in lockstep."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.policies import (
    ChatPolicy,
    ChatReply,
    ChatRequest,
    Codec,
    Finish,
    Reply,
    Sample,
    SampleKey,
    SampleRequest,
    TokenPolicy,
    is_played_in_lockstep,
)
from sparring.contracts.rollouts import RolloutKey

numbers = st.integers(0, 99)
keys = st.builds(
    SampleKey, st.builds(RolloutKey, numbers, numbers, st.text(max_size=4), numbers), numbers
)


class Sampler:
    """A token policy that says nothing."""

    name = "silent"

    def __init__(self, *, in_lockstep: bool) -> None:
        self.samples_in_lockstep = in_lockstep
        self.codec: Codec = None  # type: ignore[assignment]

    def join(self) -> None: ...

    def leave(self) -> None: ...

    async def sample(self, request: SampleRequest) -> Sample:
        return Sample(array("q"), array("d"), Finish.STOP)


class Chat:
    """A chat policy; that it has an attribute of token policies changes nothing."""

    name = "chat"
    samples_in_lockstep = True

    async def reply(self, request: ChatRequest) -> ChatReply:
        return ChatReply(Reply("hello"), Finish.STOP, 1, 1)


@settings(max_examples=50)
@given(keys, keys)
def test_a_seed_has_63_bits_and_belongs_to_one_key(one: SampleKey, other: SampleKey) -> None:
    assert 0 <= one.seed() < 2**63
    assert (one.seed() == other.seed()) == (one == other)


def test_a_seed_stays_what_it_was_in_older_versions_and_on_other_machines() -> None:
    assert SampleKey(RolloutKey(1, 2, "case", 3), 4).seed() == 6647008515883882563


@pytest.mark.parametrize(
    "other",
    [RolloutKey(1, 0, "c", 0), RolloutKey(0, 1, "c", 0), RolloutKey(0, 0, "d", 0),
     RolloutKey(0, 0, "c", 1), RolloutKey(0, 0, "c\x1f0", 0)],
)  # fmt: skip
def test_every_part_of_the_key_changes_the_seed(other: RolloutKey) -> None:
    base = RolloutKey(0, 0, "c", 0)
    assert SampleKey(other, 0).seed() != SampleKey(base, 0).seed()
    assert SampleKey(base, 1).seed() != SampleKey(base, 0).seed()


def test_requests_are_ordered_by_step_case_rollout_and_turn_whenever_they_arrive() -> None:
    ordered = [
        SampleKey(RolloutKey(7, step, case, index), turn)
        for step in (0, 1)
        for case in ("a", "b")
        for index in (0, 10)
        for turn in (0, 2)
    ]
    arrived = random.Random(3).sample(ordered, len(ordered))
    assert sorted(arrived, key=SampleKey.order) == ordered


@pytest.mark.parametrize(
    ("policy", "is_lockstep"),
    [(Sampler(in_lockstep=True), True), (Sampler(in_lockstep=False), False), (Chat(), False)],
)
def test_only_a_token_policy_that_asks_for_it_is_played_in_lockstep(
    policy: Any, is_lockstep: bool
) -> None:
    assert is_played_in_lockstep(policy) is is_lockstep


def test_a_policy_with_sample_is_a_token_policy_and_one_with_respond_a_chat_policy() -> None:
    sampler, chat = Sampler(in_lockstep=True), Chat()
    assert (isinstance(sampler, TokenPolicy), isinstance(sampler, ChatPolicy)) == (True, False)
    assert (isinstance(chat, TokenPolicy), isinstance(chat, ChatPolicy)) == (False, True)
