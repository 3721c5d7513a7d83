"""A call that the server cannot parse is the model's fault; other failures are not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import ChatRequest, SampleKey, Sampling
from sparring.contracts.rollouts import Message, RolloutKey
from sparring.contracts.specs import EndpointSpec
from sparring.jobs.ship.playing import ServedPolicy
from tests.servers import completion

REQUEST = ChatRequest(
    SampleKey(RolloutKey(0, 0, "c", 0), 0), [Message("user", "hi")], [], Sampling()
)


def reply(server: Any) -> Any:
    policy = ServedPolicy([EndpointSpec(base_url=server.url, model="m")], retries=0)
    return asyncio.run(policy.reply(REQUEST))


def test_a_server_error_is_an_unreadable_call(chat_server: Any) -> None:
    chat_server.answer = lambda _: (500, {"error": {"message": "does not match the format"}})
    found = reply(chat_server)
    assert "does not match the format" in found.reply.malformed


def test_a_reply_is_passed_on_and_other_failures_stay_failures(chat_server: Any) -> None:
    chat_server.answer = lambda _: (200, completion("hello"))
    assert reply(chat_server).reply.content == "hello"
    chat_server.answer = lambda _: (401, {"error": {"message": "who are you"}})
    with pytest.raises(InfrastructureError):
        reply(chat_server)
