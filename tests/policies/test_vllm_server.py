"""Requests to one vLLM server: what is sent, and what each reply means."""

from __future__ import annotations

import asyncio
from array import array
from typing import Any

import pytest

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import Finish, PublishedWeights, SampleKey, SampleRequest, Sampling
from sparring.contracts.rollouts import RolloutKey
from sparring.policies.vllm_server import ModelNotServed, ServerUnavailable, VllmServer
from tests.servers import ChatServer

REQUEST = SampleRequest(
    SampleKey(RolloutKey(0, 3, "c", 1), 2), array("i", [5, 6]), Sampling(0.7, 40)
)
CHOICE = {
    "finish_reason": "stop",
    "token_ids": [7, 8],
    "logprobs": {"token_logprobs": [-0.5, -0.25]},
}


def complete(status: int, body: Any, **options: Any) -> tuple[Any, dict[str, Any]]:
    with ChatServer() as server:
        server.answer = lambda _: (status, body)
        work = VllmServer(server.url).complete("run-v1", REQUEST, [3, 4], **options)
        return asyncio.run(work), server.requests[0]


def test_a_request_for_a_sample_has_token_ids_and_the_seed_of_its_key() -> None:
    sample, sent = complete(200, {"choices": [CHOICE]}, salt="v1")
    assert (list(sample.ids), list(sample.logprobs)) == ([7, 8], [-0.5, -0.25])
    assert sample.finish is Finish.STOP
    assert sent["prompt"] == [5, 6]
    assert sent["seed"] == REQUEST.key.seed()
    assert (sent["model"], sent["cache_salt"]) == ("run-v1", "v1")
    assert (sent["stop_token_ids"], sent["return_token_ids"]) == ([3, 4], True)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_fails_or_is_overloaded_is_unavailable(status: int) -> None:
    with pytest.raises(ServerUnavailable, match=str(status)):
        complete(status, {"error": "busy"})


def test_a_server_that_requires_a_key_is_named_with_the_option() -> None:
    with pytest.raises(InfrastructureError, match="requires a key: name the"):
        complete(401, {"error": "no key"})


def test_a_model_that_the_server_does_not_have_is_unknown() -> None:
    with pytest.raises(ModelNotServed, match="does not serve run-v1"):
        complete(404, {"error": "no such model"})


def test_a_refused_request_is_not_tried_again() -> None:
    with pytest.raises(InfrastructureError, match="400") as raised:
        complete(400, {"error": "prompt too long"})
    assert not isinstance(raised.value, ServerUnavailable)


@pytest.mark.parametrize(
    "choice",
    [{}, {**CHOICE, "token_ids": None}, {**CHOICE, "logprobs": {"token_logprobs": [-0.5]}}],
)
def test_a_server_without_token_ids_is_refused(choice: dict[str, Any]) -> None:
    with pytest.raises(InfrastructureError, match="returns no token ids"):
        complete(200, {"choices": [choice]})


def load(status: int, body: Any) -> dict[str, Any]:
    with ChatServer() as server:
        server.answer = lambda _: (status, body)
        weights = PublishedWeights(1, "run-v1", "/p/run-v1")
        asyncio.run(VllmServer(server.url).load_adapter(weights))
        return server.requests[0]


def test_an_adapter_is_loaded_under_its_own_name_and_never_in_place() -> None:
    assert load(200, {}) == {"lora_name": "run-v1", "lora_path": "/p/run-v1"}


def test_an_adapter_that_another_process_has_loaded_is_there() -> None:
    load(400, {"error": "has already been loaded"})


def test_a_server_that_cannot_load_adapters_is_reported_with_the_remedy() -> None:
    with pytest.raises(InfrastructureError, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"):
        load(404, {"detail": "Not Found"})
