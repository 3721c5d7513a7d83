"""The application between clients and rollouts: which loop answers, and what clients get."""

import asyncio
import json
import threading

import httpx2
import pytest

from sparring.contracts.rollouts import Ending
from sparring.gateway.app import GatewayApp
from sparring.gateway.sessions import Sessions
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.gateway.playing import in_session, play_one

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
FORMATS = {
    "/chat/completions": CHAT,
    "/messages": {**CHAT, "max_tokens": 50},
    "/responses": {"model": "m", "input": "hello"},
}


def call_app(app, path, body, method="POST"):
    """The status and the body of one request, without a server."""

    async def work():
        sent = []

        async def receive():
            return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": method, "path": path, "headers": []}
        await app(scope, receive, send)
        return sent[0]["status"], json.loads(sent[1]["body"])

    return asyncio.run(work())


@pytest.mark.parametrize("path", FORMATS)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_each_format_is_answered_whole_and_as_events(codecs, path, is_streamed):
    async def work(session, client):
        return await client.post(path, json={**FORMATS[path], "stream": is_streamed})

    _, answer = in_session(codecs["qwen3"], lambda _: "five", work)
    kind = "text/event-stream; charset=utf-8" if is_streamed else "application/json"
    assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
    assert "five" in answer.text


def test_tokens_are_counted_without_a_turn(codecs):
    async def work(session, client):
        counted = await client.post("/messages/count_tokens", json=FORMATS["/messages"])
        replied = await client.post("/messages", json=FORMATS["/messages"])
        return counted.json()["input_tokens"], replied.json()["usage"]["input_tokens"]

    rollout, (counted, used) = in_session(codecs["qwen3"], lambda _: "five", work)
    assert counted == used > 0
    assert rollout.turns == 1


def test_any_name_of_a_model_reaches_the_sessions_model(codecs):
    async def work(session, client):
        return (await client.post("/chat/completions", json={**CHAT, "model": "gpt-99"})).json()

    _, reply = in_session(codecs["qwen3"], lambda _: "five", work)
    assert reply["model"] == "gpt-99"
    assert reply["choices"][0]["message"]["content"] == "five"


@pytest.mark.parametrize("path", FORMATS)
def test_a_fault_of_the_gateway_is_an_error_in_the_formats_shape(path, caplog, monkeypatch):
    def fail(self, *_):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(Sessions, "find", fail)
    status, body = call_app(GatewayApp(Sessions()), f"/v1{path}", FORMATS[path])
    assert status == 500
    assert "ZeroDivisionError: oops" in body["error"]["message"]
    assert (body.get("type") == "error") is (path == "/messages")
    assert "the gateway failed" in caplog.text


def test_a_session_of_a_loop_that_has_ended_is_over():
    """Its program lives on and calls, after the event loop that played it was closed."""

    class Nothing:
        pass

    async def open_session():
        return sessions.open(Nothing())

    sessions = Sessions()
    opened = asyncio.run(open_session())
    status, body = call_app(GatewayApp(sessions), f"/session/{opened.key}/v1/messages", CHAT)
    assert status == 410
    assert "this rollout has ended" in body["error"]["message"]


def test_a_session_answers_410_after_its_end_and_at_its_turn_limit(codecs):
    found = []

    async def play(case, session):
        async with httpx2.AsyncClient(base_url=session.base_url) as client:
            messages = list(CHAT["messages"])
            for _ in range(3):
                answer = await client.post("/chat/completions", json={"messages": messages})
                found.append(answer.status_code)
                if answer.status_code == 200:
                    messages += [answer.json()["choices"][0]["message"]]
                    messages += [{"role": "user", "content": "more"}]

    rollout = play_one(play, ScriptedPolicy(lambda _: "five", codecs["qwen3"]), max_turns=2)
    assert found == [200, 200, 410]
    assert rollout.ending is Ending.TURN_LIMIT


def test_a_label_that_fails_ends_its_rollout_with_the_reason(codecs):
    def label(call):
        raise KeyError("title")

    async def play(case, session):
        async with httpx2.AsyncClient(base_url=session.base_url) as client:
            return (await client.post("/chat/completions", json=CHAT)).text

    policy = ScriptedPolicy(lambda _: "five", codecs["qwen3"])
    rollout = play_one(play, policy, label=label)
    assert rollout.ending is Ending.INFRASTRUCTURE_ERROR
    assert "KeyError: 'title'" in rollout.detail


def test_clients_on_many_threads_are_all_answered(codecs):
    def ask(session, found):
        with httpx2.Client(base_url=session.base_url, timeout=30) as client:
            body = {"messages": [{"role": "user", "content": threading.current_thread().name}]}
            found.append(client.post("/chat/completions", json=body).json())

    def play(case, session):
        found = []
        threads = [threading.Thread(target=ask, args=(session, found)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return str(len({reply["id"] for reply in found}))

    rollout = play_one(play, ScriptedPolicy(lambda _: "five", codecs["qwen3"]))
    assert (rollout.answer, rollout.turns, len(rollout.rows)) == ("8", 8, 8)
