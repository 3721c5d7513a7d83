"""Clients of a server: one per event loop, and what a model refuses is adapted once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sparring.contracts.errors import EndpointError, InvalidInput
from sparring.contracts.specs import EndpointSpec
from sparring.endpoints import EndpointClient, refuse_missing_key
from tests.servers import ChatServer, completion

MESSAGES = [{"role": "user", "content": "hi"}]


def client_of(server: ChatServer, **options: Any) -> EndpointClient:
    spec = EndpointSpec(base_url=server.url, model="fake", key_variable="TEST_ENDPOINT_KEY")
    return EndpointClient(spec, **options)


def ask(client: EndpointClient, *requests: dict[str, Any]) -> list[str]:
    """Sends requests with these options in one event loop, and returns the replies."""

    async def replies() -> list[str]:
        return [
            (await client.chat(model="fake", messages=MESSAGES, **request))
            .choices[0]
            .message.content
            for request in requests
        ]

    return asyncio.run(replies())


def refuse(message: str, *names: str, param: str | None = None) -> Any:
    """Answers requests with any of these arguments by this refusal."""

    def answer(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if any(name in request for name in names):
            return 400, {"error": {"message": message, "param": param}}
        return 200, completion("hello")

    return answer


def test_each_event_loop_has_a_client_of_its_own(chat_server: ChatServer) -> None:
    client = client_of(chat_server)

    async def clients() -> list[Any]:
        reply = await client.chat(model="fake", messages=MESSAGES)
        assert reply.choices[0].message.content == "hello"
        return [client.get(), client.get()]

    first, again = asyncio.run(clients())
    other, _ = asyncio.run(clients())
    assert first is again
    assert other is not first


def test_a_renamed_argument_keeps_its_value_and_its_new_name(chat_server: ChatServer) -> None:
    chat_server.answer = refuse("Use 'max_completion_tokens' instead.", "max_tokens")
    client = client_of(chat_server, retries=0)
    assert ask(client, {"max_tokens": 7}, {"max_tokens": 8}) == ["hello", "hello"]
    names = ("max_tokens", "max_completion_tokens")
    sent = [tuple(each.get(name) for name in names) for each in chat_server.requests]
    assert sent == [(7, None), (None, 7), (None, 8)]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("Unsupported value: 'temperature' does not support 0.8.", None),
        ("Only the default (1) is supported.", "temperature"),
    ],
)
def test_an_argument_that_is_not_supported_is_left_out_from_then_on_with_a_warning(
    chat_server: ChatServer,
    caplog: pytest.LogCaptureFixture,
    message: str,
    param: str | None,
) -> None:
    chat_server.answer = refuse(message, "temperature", param=param)
    client = client_of(chat_server, retries=0)
    assert ask(client, *[{"temperature": 0.8, "seed": 3}] * 2) == ["hello", "hello"]
    assert ["temperature" in each for each in chat_server.requests] == [True, False, False]
    assert all(each["seed"] == 3 for each in chat_server.requests)
    warning = "fake does not accept temperature=0.8; the model's default is used"
    assert caplog.messages.count(warning) == 1


def test_several_refused_arguments_are_adapted_one_after_the_other(
    chat_server: ChatServer,
) -> None:
    def answer(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        refused = [name for name in ("top_p", "temperature") if name in request]
        if refused:
            return 400, {"error": {"message": f"unsupported: `{refused[0]}`"}}
        return 200, completion("hello")

    chat_server.answer = answer
    client = client_of(chat_server, retries=0)
    assert ask(client, {"top_p": 0.9, "temperature": 0.5}) == ["hello"]
    assert len(chat_server.requests) == 3


@pytest.mark.parametrize(
    "message",
    [
        "the model 'fake' does not exist",
        "'temperature' must be at most 2",
        "unsupported: 'messages' without content",
    ],
)
def test_a_refusal_that_no_change_would_mend_is_raised_at_once(
    chat_server: ChatServer, message: str
) -> None:
    chat_server.answer = refuse(message, "messages")
    with pytest.raises(EndpointError, match=message.split("'")[-1].strip()):
        ask(client_of(chat_server), {"temperature": 3})
    assert len(chat_server.requests) == 1


def test_a_request_to_a_busy_server_is_retried(chat_server: ChatServer) -> None:
    statuses = iter([503, 200])
    chat_server.answer = lambda _: (next(statuses), completion("at last"))
    assert ask(client_of(chat_server, retries=1), {}) == ["at last"]


def test_the_key_is_read_when_a_client_is_made(
    chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEST_ENDPOINT_KEY", raising=False)
    client = client_of(chat_server)
    ask(client, {})
    monkeypatch.setenv("TEST_ENDPOINT_KEY", "fresh")
    ask(client, {})
    assert chat_server.keys == ["Bearer none", "Bearer fresh"]


def test_a_server_that_nobody_named_a_key_for_gets_none(
    chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-openai")
    ask(EndpointClient(EndpointSpec(base_url=chat_server.url, model="fake")), {})
    assert chat_server.keys == ["Bearer none"]


REFUSALS = {
    "no key was named": (401, {"error": {"message": "no key."}}, None,
        "answered 401 (no key); it requires a key: name the environment variable that holds it "
        "with --key-variable, or with key_variable in Python"),
    "the key is not set": (401, {"error": {"message": "no key"}}, "UNSET_KEY",
        "answered 401 (no key); it requires a key: set UNSET_KEY, or set UNSET_KEY_FILE to the "
        "path of a file that holds the key"),
    "the key is wrong": (401, {"error": {"message": "bad"}}, "TEST_ENDPOINT_KEY",
        "answered 401 (bad); check that the key in TEST_ENDPOINT_KEY is valid for this model"),
    "no such model": (404, {"error": {"message": "The model `fake` does not exist"}}, None,
        "answered 404 (The model `fake` does not exist); check the model's name, fake and that "
        "URL/chat/completions is the path of the server's API"),
    "no such path": (404, "<h1>Not found</h1>", None,
        "answered 404 (<h1>Not found</h1>); check the model's name, fake and that "
        "URL/chat/completions is the path of the server's API"),
    "too many requests": (429, {"error": {"message": "slow down"}}, None,
        "answered 429 (slow down); wait, raise the server's limit, or lower --max-concurrency"),
    "a broken server": (503, {}, None,
        "answered 503; check the server's log, or try again later"),
    "a page": (200, "<html>Sign in</html>", None,
        "answered 200, but not with a chat completion: '<html>Sign in</html>'; check the address "
        "and that URL/chat/completions is the path of the server's API"),
    "no choices": (200, {"error": "overloaded"}, None,
        "answered 200, but not with a chat completion: an answer without choices overloaded; check "
        "the address and that URL/chat/completions is the path of the server's API"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_names_address_status_and_cure_after_one_request_or_two_if_it_may_pass(
    chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    status, body, variable, message = REFUSALS[case]
    monkeypatch.setenv("TEST_ENDPOINT_KEY", "key")
    chat_server.answer = lambda _: (status, body)
    spec = EndpointSpec(base_url=chat_server.url, model="fake", key_variable=variable)
    with pytest.raises(EndpointError) as raised:
        asyncio.run(EndpointClient(spec).ask_once())
    assert str(raised.value) == f"{chat_server.url} {message.replace('URL', chat_server.url)}"
    assert len(chat_server.requests) == (2 if status in (429, 503) else 1)
    with pytest.raises(EndpointError) as raised:  # the same words in the middle of a run
        ask(EndpointClient(spec, retries=0), {})
    assert str(raised.value) == f"{chat_server.url} {message.replace('URL', chat_server.url)}"


def test_an_address_without_a_path_gets_the_path_of_most_servers() -> None:
    spec = EndpointSpec(base_url="http://127.0.0.1:9", model="fake")
    assert "most servers answer at http://127.0.0.1:9/v1" in str(
        EndpointClient(spec)._no_completion("<html>")
    )


def test_a_server_that_is_down_is_named_with_the_cause() -> None:
    spec = EndpointSpec(base_url="http://127.0.0.1:9/v1", model="fake")
    with pytest.raises(EndpointError, match=r"^http://127.0.0.1:9/v1 cannot be reached \(.+\);"):
        asyncio.run(EndpointClient(spec).ask_once())


def test_a_model_that_needs_more_tokens_than_a_question_allows_is_no_failure(
    chat_server: ChatServer,
) -> None:
    message = "Could not finish the message because max_tokens or model output limit was reached."
    chat_server.answer = lambda _: (400, {"error": {"message": message}})
    asyncio.run(client_of(chat_server).ask_once())


def test_a_missing_key_is_refused_with_the_variable_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY_FILE", raising=False)
    spec = EndpointSpec(base_url="https://api.openai.com/v1", model="gpt-9")
    with pytest.raises(InvalidInput, match=r"openai.com/v1 requires a key: set OPENAI_API_KEY, or"):
        refuse_missing_key(spec)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    refuse_missing_key(spec)
    refuse_missing_key(EndpointSpec(base_url="http://127.0.0.1:9/v1", model="fake"))
