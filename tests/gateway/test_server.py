"""The server against strangers: no key opens another's session, nothing crashes, every refusal has
the shape of its format."""

import asyncio
import copy
import json
import random
import socket
import time

import httpx2
import pytest

from sparring.gateway.server import GatewayServer
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.gateway.playing import (
    TOOLS,
    gateway_agent,
    in_session,
    plain_play,
    play_all,
    play_one,
    plays,
)

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
PATHS = {
    "/chat/completions": CHAT,
    "/messages": {**CHAT, "max_tokens": 50},
    "/responses": {"model": "m", "input": [{"role": "user", "content": "hello"}]},
}


def has_the_shape(path, response):
    body = response.json()
    if path.endswith("/messages"):
        return body["type"] == "error" and isinstance(body["error"]["message"], str)
    return isinstance(body["error"]["message"], str) and "type" in body["error"]


@pytest.mark.parametrize("path", PATHS)
def test_keys_that_open_nothing_are_refused_in_the_formats_shape(codecs, path):
    async def work(session, client):
        root = session.base_url.split("/session/")[0]
        answers = []
        for key in ("x", "sk-sparring-guessed", session.api_key[:-1], session.api_key + "x", "ä"):
            headers = {"authorization": f"Bearer {key}".encode()}
            answers.append(await client.post(f"{root}/v1{path}", json=PATHS[path], headers=headers))
            answers.append(await client.post(f"{root}/session/{key}/v1{path}", json=PATHS[path]))
        return answers, await client.post(path, json=PATHS[path])

    rollout, (answers, right) = in_session(codecs["qwen3"], lambda _: "five", work)
    assert right.status_code == 200
    assert rollout.turns == 1
    for answer in answers:
        assert answer.status_code in (401, 404)
        assert answer.status_code == 404 or has_the_shape(path, answer)


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
def test_the_key_alone_finds_the_session(codecs, header):
    async def work(session, client):
        root = session.base_url.split("/session/")[0]
        value = session.api_key if header == "x-api-key" else f"Bearer {session.api_key}"
        return await client.post(f"{root}/v1/chat/completions", json=CHAT, headers={header: value})

    _, answer = in_session(codecs["qwen3"], lambda _: "five", work)
    assert answer.status_code == 200


def test_the_key_of_another_session_does_not_fit(codecs):
    """Two rollouts at a time: neither sees or changes the other."""
    met, refusals, both = [], [], asyncio.Barrier(2)

    async def play(case, session):
        met.append(session)
        await both.wait()
        other = next(each for each in met if each is not session)
        async with httpx2.AsyncClient() as client:
            answer = await client.post(
                f"{session.base_url}/chat/completions",
                json=CHAT,
                headers={"authorization": f"Bearer {other.api_key}"},
            )
        refusals.append(answer.status_code)
        return await plain_play()(case, session)

    rollouts = play_all(
        gateway_agent(play), ScriptedPolicy(lambda _: "five", codecs["qwen3"]), plays(2)
    )
    assert refusals == [401, 401]
    assert [rollout.turns for rollout in rollouts] == [1, 1]


def test_a_stored_response_is_unknown_to_other_sessions(codecs):
    answers, both = [], asyncio.Barrier(2)

    async def play(case, session):
        async with httpx2.AsyncClient(base_url=session.base_url) as client:
            first = (await client.post("/responses", json=PATHS["/responses"])).json()
            await both.wait()
            body = {**PATHS["/responses"], "previous_response_id": "resp_0"}
            answers.append((first["id"], (await client.post("/responses", json=body)).json()))

    play_all(
        gateway_agent(play),
        ScriptedPolicy(lambda r: r.key.rollout.case_id, codecs["qwen3"]),
        plays(2),
    )
    assert {answer["output"][0]["content"][0]["text"] for _, answer in answers} == {"c0", "c1"}


def test_a_body_that_is_too_large_is_refused(codecs, monkeypatch):
    monkeypatch.setattr("sparring.gateway.http._MAX_BODY_BYTES", 1000)

    async def work(session, client):
        large = {**CHAT, "user": "x" * 2000}
        return [await client.post(path, json={**PATHS[path], **large}) for path in PATHS], (
            await client.post("/chat/completions", json=CHAT)
        )

    _, (refused, right) = in_session(codecs["qwen3"], lambda _: "five", work)
    assert [answer.status_code for answer in refused] == [413] * 3
    assert all(has_the_shape(path, answer) for path, answer in zip(PATHS, refused, strict=True))
    assert right.status_code == 200


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"3", b"\xff\xfe", b'{"messages": ' + b"[" * 100_000, b"null", b"{}"],
)
def test_a_body_that_is_no_request_is_refused(codecs, body):
    async def work(session, client):
        answers = [await client.post(path, content=body) for path in PATHS]
        return answers, await client.post("/chat/completions", json=CHAT)

    _, (refused, right) = in_session(codecs["qwen3"], lambda _: "five", work)
    assert [answer.status_code for answer in refused] == [400] * 3
    assert all(has_the_shape(path, answer) for path, answer in zip(PATHS, refused, strict=True))
    assert right.status_code == 200


def test_a_body_that_comes_too_slowly_is_given_up(codecs, monkeypatch):
    monkeypatch.setattr("sparring.gateway.http._BODY_SECONDS", 0.3)

    async def work(session, client):
        async def drip():
            yield b'{"model": "m", '
            await asyncio.sleep(1.0)
            yield b'"messages": []}'

        slow = await client.post("/chat/completions", content=drip())
        return slow, await client.post("/chat/completions", json=CHAT)

    _, (slow, right) = in_session(codecs["qwen3"], lambda _: "five", work)
    assert slow.status_code == 408
    assert right.status_code == 200


def test_a_connection_that_never_sends_a_request_is_closed(monkeypatch):
    monkeypatch.setattr("sparring.gateway.server._FIRST_BYTE_SECONDS", 0.3)
    server = GatewayServer()
    try:
        with socket.create_connection((server.host, server.port), timeout=10) as connection:
            connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nx-a: ")
            started = time.monotonic()
            assert connection.recv(100) == b""
            assert time.monotonic() - started < 9
    finally:
        server.close()


def test_an_address_that_others_reach_is_warned_about(caplog):
    for host, warnings in (("127.0.0.1", 0), ("127.0.0.2", 1)):
        GatewayServer(host=host).close()
        assert len(caplog.records) == warnings
    assert "listens on 127.0.0.2" in caplog.text


def test_addresses_that_do_not_exist_are_named(codecs):
    async def work(session, client):
        await client.post("/chat/completions", json=CHAT)
        return await client.post("/embeddings", json={}), await client.get("/chat/completions")

    _, (unknown, wrong) = in_session(codecs["qwen3"], lambda _: "five", work)
    assert (unknown.status_code, wrong.status_code) == (404, 404)
    assert "/embeddings" in unknown.json()["error"]["message"]


def test_models_lists_the_model_of_the_session(codecs):
    async def work(session, client):
        await client.post("/chat/completions", json=CHAT)
        return (await client.get("/models")).json()

    _, listed = in_session(codecs["qwen3"], lambda _: "five", work)
    assert [model["id"] for model in listed["data"]] == ["scripted"]


class Slow(ScriptedPolicy):
    """Answers after a while, and counts."""

    samples = 0

    async def sample(self, request):
        self.samples += 1
        await asyncio.sleep(0.3)
        return await super().sample(request)


def test_a_client_that_went_away_gets_the_same_reply_later(codecs):
    policy = Slow(lambda _: f"reply {policy.samples}", codecs["qwen3"])

    async def play(case, session):
        async with httpx2.AsyncClient(base_url=session.base_url) as client:
            with pytest.raises(httpx2.ReadTimeout):
                await client.post("/chat/completions", json=CHAT, timeout=0.1)
            answer = await client.post("/chat/completions", json=CHAT)
            return answer.json()["choices"][0]["message"]["content"]

    rollout = play_one(play, policy)
    assert (rollout.answer, policy.samples, len(rollout.rows)) == ("reply 1", 1, 1)


def test_retries_that_clients_mark_get_the_same_reply(codecs):
    replies = iter(range(9))

    async def work(session, client):
        answers = []
        for headers in (
            {},
            {"x-stainless-retry-count": "1"},
            {},
            {"idempotency-key": "k"},
            {"idempotency-key": "k"},
        ):
            answer = await client.post("/chat/completions", json=CHAT, headers=headers)
            answers.append(answer.json()["choices"][0]["message"]["content"])
        return answers

    _, answers = in_session(codecs["qwen3"], lambda _: f"reply {next(replies)}", work)
    assert answers == ["reply 0", "reply 0", "reply 1", "reply 2", "reply 2"]


ODD = [
    None,
    True,
    -1,
    0,
    1e300,
    "",
    "x",
    "\ud800",
    [],
    {},
    [None],
    {"type": "text"},
    [[]],
    "a" * 300,
]


def fuzzed(random_, valid):
    """A valid body with parts replaced, removed, repeated or nested."""
    body = json.loads(json.dumps(valid))
    for _ in range(random_.randint(1, 4)):
        target, key = body, None
        while isinstance(target, dict | list) and target and random_.random() < 0.8:
            parent = target
            key = random_.choice(list(target) if isinstance(target, dict) else range(len(target)))
            target = target[key]
        kind = {"type": random_.choice(["text", "image"])}
        new = copy.deepcopy(random_.choice([*ODD, kind]))
        if key is None:
            body[random_.choice(["model", "stream", "stop", "tools", "n", "x"])] = new
        elif random_.random() < 0.2 and isinstance(parent, dict):
            del parent[key]
        else:
            parent[key] = new
    return body


RICH = {
    "/chat/completions": {
        **CHAT,
        "tools": TOOLS,
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "s"}]},
            {"role": "user", "content": "u"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "3"},
        ],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
        "tool_choice": "auto",
        "max_tokens": 5,
        "stop": ["x"],
    },
    "/messages": {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "u"}]},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c", "content": "3"}],
            },
        ],
        "tools": [{"name": "add", "description": "d", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto"},
    },
    "/responses": {
        "model": "m",
        "instructions": "i",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "u"}]},
            {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "3"},
        ],
        "tools": [{"type": "function", "name": "add", "parameters": {}}],
        "text": {"format": {"type": "text"}},
        "max_output_tokens": 5,
    },
}


def fuzz(codec, number, seed):
    random_ = random.Random(seed)

    async def work(session, client):
        counts = {}
        for _ in range(number):
            path = random_.choice(list(RICH))
            content = json.dumps(fuzzed(random_, RICH[path])).encode()
            if random_.random() < 0.05:
                cut = random_.randrange(len(content))
                content = content[:cut] + random_.randbytes(3) + content[cut + 1 :]
            answer = await client.post(path, content=content)
            counts[answer.status_code] = counts.get(answer.status_code, 0) + 1
            assert answer.status_code in (200, 400), (path, content, answer.text)
            assert answer.status_code == 200 or has_the_shape(path, answer)
        assert (await client.post("/chat/completions", json=CHAT)).status_code == 200
        return counts

    limits = {"completion_tokens": 1 << 30, "max_turns": 1 << 20, "rollout_timeout": 3000.0}
    rollout, counts = in_session(codec, lambda _: "five", work, **limits)
    assert rollout.turns >= counts[200]
    return counts


def test_fuzzed_requests_are_answered_or_refused(codecs):
    counts = fuzz(codecs["qwen3"], 600, seed=1)
    assert counts[200] > 30
    assert counts[400] > 200


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_ten_thousand_fuzzed_requests_are_answered_or_refused(codecs):
    for seed in range(20):
        fuzz(codecs["qwen3"], 500, seed=seed)
