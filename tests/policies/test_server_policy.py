"""A pool of servers: one version per rollout, sticky by case, the next one on failure."""

from __future__ import annotations

import asyncio
import itertools
import threading
from array import array
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import (
    Finish,
    PublishedWeights,
    Sample,
    SampleKey,
    SampleRequest,
    Sampling,
)
from sparring.contracts.rollouts import RolloutKey
from sparring.policies.families import family_named
from sparring.policies.server_policy import ServerPolicy
from sparring.policies.vllm_server import ModelNotServed, ServerUnavailable
from tests.servers import ChatServer

OK = {
    "choices": [{"finish_reason": "stop", "token_ids": [7], "logprobs": {"token_logprobs": [-0.5]}}]
}


def ask(case: str = "c", index: int = 0, turn: int = 0) -> SampleRequest:
    key = SampleKey(RolloutKey(0, 0, case, index), turn)
    return SampleRequest(key, array("i", [1]), Sampling(0.7, 40))


def weights(version: int) -> PublishedWeights:
    return PublishedWeights(version, f"run-v{version}", "/p")


def pool(codecs: Any, *servers: Any, **options: Any) -> ServerPolicy:
    addresses = [getattr(each, "url", each) for each in servers]
    policy = ServerPolicy(addresses, codecs["qwen3"].tokenizer, family_named("qwen3"), **options)
    policy.use(weights(1))
    return policy


def served(stack: ExitStack, count: int) -> list[ChatServer]:
    servers = [stack.enter_context(ChatServer()) for _ in range(count)]
    for server in servers:
        server.answer = lambda _: (200, OK)
    return servers


def test_all_turns_of_a_rollout_use_the_weights_of_its_first(codecs: Any) -> None:
    with ExitStack() as stack:
        (server,) = served(stack, 1)
        policy = pool(codecs, server)

        async def play() -> list[int | None]:
            first = await policy.sample(ask(turn=0))
            policy.use(weights(2))
            later = await policy.sample(ask(turn=1))
            other = await policy.sample(ask(index=1))
            return [first.version, later.version, other.version]

        assert asyncio.run(play()) == [1, 1, 2]
        assert [sent["model"] for sent in server.requests] == ["run-v1", "run-v1", "run-v2"]


def test_the_rollouts_of_a_case_go_to_one_server_and_cases_are_spread(codecs: Any) -> None:
    with ExitStack() as stack:
        servers = served(stack, 3)
        policy = pool(codecs, *servers)

        async def play() -> None:
            for case in range(30):
                before = [len(each.requests) for each in servers]
                for index in range(3):
                    await policy.sample(ask(f"case {case}", index))
                grown = [len(each.requests) - n for each, n in zip(servers, before, strict=True)]
                assert sorted(grown) == [0, 0, 3]

        asyncio.run(play())
        assert all(each.requests for each in servers)


def test_a_server_that_is_gone_is_replaced_by_the_next(codecs: Any) -> None:
    with ExitStack() as stack:
        (server,) = served(stack, 1)
        policy = pool(codecs, "http://127.0.0.1:9", server)

        async def play() -> None:
            for case in range(20):
                await policy.sample(ask(f"case {case}"))

        asyncio.run(play())
        assert len(server.requests) == 20
        assert 1 <= policy.retries < 20  # it gets a request now and then, not every time


def test_a_server_that_comes_late_is_waited_for(codecs: Any) -> None:
    with ExitStack() as stack:
        (server,) = served(stack, 1)
        replies = iter([(503, {}), (503, {})])
        server.answer = lambda _: next(replies, (200, OK))
        policy = pool(codecs, server)
        assert list(asyncio.run(policy.sample(ask())).ids) == [7]
        assert policy.retries == 2


def test_requests_that_fail_together_keep_a_server_out_no_longer_than_one(
    codecs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("sparring.policies.server_policy.time", clock)
    with ExitStack() as stack:
        late, other = served(stack, 2)
        late.answer = lambda _: (503, {})
        policy = pool(codecs, late, other)

        async def play(cases: range) -> None:
            await asyncio.gather(*(policy.sample(ask(f"case {n}")) for n in cases))

        asyncio.run(play(range(20)))
        assert policy.retries > 3
        late.answer = lambda _: (200, OK)
        late.requests.clear()
        asyncio.run(play(range(20, 40)))
        assert not late.requests
        now[0] += 1
        asyncio.run(play(range(40, 60)))
        assert late.requests


def test_a_rollout_fails_once_no_server_answers(codecs: Any) -> None:
    policy = pool(codecs, "http://127.0.0.1:9", wait_seconds=0.01)
    with pytest.raises(InfrastructureError, match="none of 1 sampling servers answered"):
        asyncio.run(policy.sample(ask()))


def test_weights_that_a_server_does_not_know_are_loaded_once_for_all(codecs: Any) -> None:
    """As after a restart: requests that come meanwhile wait for the same load."""
    with ExitStack() as stack:
        (server,) = served(stack, 1)
        loaded: list[str] = []
        has_loaded = threading.Event()
        refused = itertools.count()

        def answer(sent: dict[str, Any]) -> tuple[int, Any]:
            if "lora_name" in sent:
                loaded.append(sent["lora_name"])
                has_loaded.set()
                return 200, {}
            if loaded:
                return 200, OK
            if next(refused) == 1:  # this refusal arrives after the load that another one caused
                has_loaded.wait(10)
            return 404, {"error": "no such model"}

        server.answer = answer
        policy = pool(codecs, server)

        async def play() -> None:
            await asyncio.gather(*(policy.sample(ask(index=n)) for n in range(8)))

        asyncio.run(play())
        assert loaded == ["run-v1"]


def test_a_load_that_failed_is_tried_again_by_the_next_request(codecs: Any) -> None:
    """Two requests find that the weights are missing; the first one's load fails."""
    policy = pool(codecs, "http://127.0.0.1:9")
    (server,) = policy.servers
    loads, loaded = itertools.count(), []
    has_failed = asyncio.Event()

    async def complete(name: str, request: SampleRequest, *_: Any, **__: Any) -> Sample:
        if loaded:
            return Sample(array("i", [7]), array("f", [-0.5]), Finish.STOP)
        if request.key.rollout.index == 1:
            await has_failed.wait()
        raise ModelNotServed(name)

    async def load_adapter(weights: PublishedWeights) -> None:
        if next(loads) == 0:
            has_failed.set()
            raise ServerUnavailable("it restarts")
        loaded.append(weights.name)

    server.complete, server.load_adapter = complete, load_adapter  # type: ignore[method-assign]

    async def play() -> None:
        await asyncio.gather(*(policy.sample(ask(index=n)) for n in range(2)))

    asyncio.run(play())
    assert loaded == ["run-v1"]


def test_sampling_before_anything_was_published_is_refused(codecs: Any) -> None:
    policy = ServerPolicy(["http://x:1"], codecs["qwen3"].tokenizer, family_named("qwen3"))
    with pytest.raises(InfrastructureError, match="no weights were published"):
        asyncio.run(policy.sample(ask()))


def test_tokens_are_counted_as_progress(codecs: Any) -> None:
    with ExitStack() as stack:
        (server,) = served(stack, 1)
        policy = pool(codecs, server)
        asyncio.run(policy.sample(ask()))
        assert policy.tokens_drawn == 1
