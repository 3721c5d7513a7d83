"""Requests as uvicorn hands them over: keys, bodies in pieces, clients that go away."""

import asyncio
import json

import pytest

from sparring.gateway.http import Disconnected, Request, Response
from sparring.gateway.wire import Refused

DISCONNECT = {"type": "http.disconnect"}


def scope(path="/v1/chat/completions", method="POST", **headers):
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "headers": named}


def chunk(body, *, more=False):
    return {"type": "http.request", "body": body, "more_body": more}


class Connection:
    """Hands messages over: None stands for a moment in which there is none yet."""

    def __init__(self, *messages):
        self._messages = list(messages)

    async def receive(self):
        while self._messages and self._messages[0] is None:
            self._messages.pop(0)
            await asyncio.sleep(0)
        if not self._messages:
            await asyncio.Event().wait()
        return self._messages.pop(0)


def read(*messages):
    async def work():
        return await Request(scope(), Connection(*messages).receive).json()

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("path", "key", "rest"),
    [
        ("/v1/chat/completions", "", "chat/completions"),
        ("/chat/completions/", "", "chat/completions"),
        ("/session/k/v1/messages", "k", "messages"),
        ("/session/k/messages", "k", "messages"),
        ("/session/k", "k", ""),
        ("/session/", "", ""),
        ("//v1/models", "", "models"),
    ],
)
def test_a_path_names_a_session_and_an_endpoint(path, key, rest):
    request = Request(scope(path), None)
    assert (request.path_key, request.path, request.full_path) == (key, rest, path)


def test_keys_come_in_the_headers_of_either_client():
    assert Request(scope(authorization="Bearer  k "), None).header_key == "k"
    assert Request(scope(x_api_key="a"), None).header_key == "a"
    assert Request(scope(authorization="Basic k", x_api_key="a"), None).header_key == "a"
    assert Request(scope(), None).header_key == ""


@pytest.mark.parametrize(
    "messages",
    [
        [chunk(b'{"a": 1}')],
        [None, chunk(b'{"a": 1}')],
        [chunk(b'{"a"', more=True), None, None, chunk(b": 1", more=True), chunk(b"}")],
    ],
    ids=["whole", "late", "in pieces"],
)
def test_a_body_is_read_however_it_arrives(messages):
    assert read(*messages) == {"a": 1}


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"a": NaN}', b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_refused(body):
    with pytest.raises(Refused, match="the body") as caught:
        read(chunk(body))
    assert caught.value.status == 400


def test_a_body_that_is_too_large_is_refused_before_all_of_it_came(monkeypatch):
    monkeypatch.setattr("sparring.gateway.http._MAX_BODY_BYTES", 10)
    for messages in ([chunk(b"x" * 11)], [chunk(b"x" * 6, more=True), chunk(b"x" * 6, more=True)]):
        with pytest.raises(Refused) as caught:
            read(*messages)
        assert caught.value.status == 413


def test_a_body_that_does_not_come_is_given_up(monkeypatch):
    monkeypatch.setattr("sparring.gateway.http._BODY_SECONDS", 0.01)
    for messages in ([], [chunk(b"{", more=True)]):
        with pytest.raises(Refused) as caught:
            read(*messages)
        assert caught.value.status == 408


def test_a_client_that_goes_away_is_noticed():
    with pytest.raises(Disconnected):
        read(chunk(b"{", more=True), DISCONNECT)

    async def work():
        gone, there = Connection(DISCONNECT), Connection()
        states = [Request(scope(), each.receive).is_disconnected() for each in (gone, there)]
        assert len(asyncio.all_tasks()) == 1  # nobody is left waiting
        return states

    assert asyncio.run(work()) == [True, False]


def test_a_response_is_sent_with_its_length():
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(Response.of_json({"text": "ä\ud800"}, 201).send(send))
    assert sent[0]["status"] == 201
    headers = dict(sent[0]["headers"])
    assert headers[b"content-type"] == b"application/json"
    assert int(headers[b"content-length"]) == len(sent[1]["body"])
    assert json.loads(sent[1]["body"]) == {"text": "ä\ud800"}
