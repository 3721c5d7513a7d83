import asyncio
import json
from collections import Counter

import pytest

from sparring.contracts.errors import InfrastructureError, InvalidInput
from sparring.contracts.policies import ChatRequest, SampleKey, Sampling
from sparring.contracts.rollouts import Message, RequestedCall, RolloutKey
from sparring.contracts.specs import EndpointSpec
from sparring.policies.endpoint_policy import EndpointPolicy
from tests.servers import ChatServer, completion

TOOL = {"type": "function", "function": {"name": "add", "parameters": {}}}


def ask(policy, case="c", **options):
    messages = options.pop("messages", [Message("user", "hi")])
    key = SampleKey(RolloutKey(0, 0, case, 0), 0)
    return asyncio.run(
        policy.reply(ChatRequest(key, messages, options.pop("tools", []), Sampling()))
    )


def policy_for(server, **options):
    return EndpointPolicy([EndpointSpec(base_url=server.url, model="fake")], **options)


def test_calls_and_thinking_are_read(chat_server):
    body = completion("<think>hm</think>ok", [{"name": "add", "arguments": '{"a": 1}'}])
    chat_server.answer = lambda request: (200, body)
    answer = ask(policy_for(chat_server), tools=[TOOL])
    assert (answer.reply.content, answer.reply.thinking) == ("ok", "hm")
    assert answer.reply.calls[0].arguments == '{"a": 1}'
    assert chat_server.requests[0]["tools"] == [TOOL]


def test_calls_and_results_of_earlier_turns_are_sent_as_such(chat_server):
    history = [
        Message("user", "hi"),
        Message("assistant", "", calls=(RequestedCall("1", "add", "{}"),)),
        Message("tool", "3", call_id="1"),
    ]
    ask(policy_for(chat_server), messages=history)
    sent = chat_server.requests[0]["messages"]
    assert sent[1]["tool_calls"][0]["function"] == {"name": "add", "arguments": "{}"}
    assert sent[2] == {"role": "tool", "content": "3", "tool_call_id": "1"}


def test_too_many_requests_and_broken_servers_are_tried_again(chat_server):
    statuses = iter([429, 500, 503, 200])
    chat_server.answer = lambda request: (next(statuses), completion("at last"))
    assert ask(policy_for(chat_server)).reply.content == "at last"
    assert len(chat_server.requests) == 4


def test_an_endpoint_that_still_fails_is_passed_over(chat_server):
    with ChatServer() as broken:
        broken.answer = lambda request: (500, {"error": {"message": "no"}})
        servers = [
            EndpointSpec(base_url=broken.url, model="fake", weight=1000),
            EndpointSpec(base_url=chat_server.url, model="fake", weight=0.001),
        ]
        assert ask(EndpointPolicy(servers, retries=0)).reply.content == "hello"
        assert broken.requests


def test_an_endpoint_that_sends_no_choice_is_passed_over(chat_server):
    with ChatServer() as broken:
        broken.answer = lambda request: (200, {**completion("x"), "choices": []})
        servers = [
            EndpointSpec(base_url=broken.url, model="fake", weight=1000),
            EndpointSpec(base_url=chat_server.url, model="fake", weight=0.001),
        ]
        assert ask(EndpointPolicy(servers, retries=0)).reply.content == "hello"
        with pytest.raises(InfrastructureError, match="without choices"):
            ask(EndpointPolicy(servers[:1], retries=0))


def test_an_unreachable_endpoint_is_an_infrastructure_error_with_the_remedy():
    unreachable = EndpointSpec(base_url="http://127.0.0.1:9/v1", model="fake")
    with pytest.raises(
        InfrastructureError, match=r"127.0.0.1:9/v1 cannot be reached \(.*\); check the address"
    ):
        ask(EndpointPolicy([unreachable], retries=0))


def test_weights_decide_the_share_of_requests_and_the_seed_which(chat_server):
    servers = [
        EndpointSpec(base_url=chat_server.url, model="big", weight=3),
        EndpointSpec(base_url=chat_server.url, model="small", weight=1),
    ]
    policy = EndpointPolicy(servers)
    keys = [SampleKey(RolloutKey(0, 0, str(n), 0), 0) for n in range(2000)]
    picked = [policy._order(key)[0] for key in keys]
    assert picked == [policy._order(key)[0] for key in keys]
    assert 1400 < Counter(picked)[0] < 1600


def test_arguments_that_are_not_an_object_are_malformed(chat_server):
    body = completion("", [{"name": "add", "arguments": "[1"}])
    chat_server.answer = lambda request: (200, body)
    assert "add" in ask(policy_for(chat_server)).reply.malformed


def test_the_key_comes_from_the_environment_or_a_file(chat_server, monkeypatch, tmp_path):
    (tmp_path / "key").write_text("from-file\n")
    monkeypatch.setenv("MY_KEY_FILE", str(tmp_path / "key"))
    spec = EndpointSpec(base_url=chat_server.url, model="fake", key_variable="MY_KEY")
    ask(EndpointPolicy([spec]))
    assert chat_server.keys == ["Bearer from-file"]
    assert "from-file" not in json.dumps(spec.model_dump())


def test_no_endpoint_at_all_is_refused():
    with pytest.raises(InvalidInput, match="--endpoint"):
        EndpointPolicy([])


def test_a_policy_serves_several_event_loops(chat_server):
    policy = policy_for(chat_server)
    assert [ask(policy).reply.content for _ in range(3)] == ["hello"] * 3


@pytest.mark.parametrize(
    "url", ["localhost:9701/v1", "//localhost:9701/v1", "ftp://localhost:9701/v1"]
)
def test_an_address_without_http_is_refused_with_the_address_to_write(url):
    with pytest.raises(ValueError, match="is not an HTTP address; write http://localhost:9701/v1"):
        EndpointSpec(base_url=url, model="x")


@pytest.mark.parametrize("url", ["https://me:secret@host/v1", "https://host/v1?api_key=secret"])
def test_a_key_in_the_address_is_refused(url):
    with pytest.raises(ValueError, match="must not carry"):
        EndpointSpec(base_url=url, model="x")


def refusing(request):
    """As newer models of OpenAI refuse."""
    if "max_tokens" in request:
        message = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead."
        )
        return 400, {"error": {"message": message, "param": "max_tokens"}}
    if request.get("temperature") not in (None, 1):
        message = "Unsupported value: 'temperature' does not support 0.8 with this model."
        return 400, {"error": {"message": message, "param": "temperature"}}
    return 200, completion("hello")


def test_parameters_that_a_model_refuses_are_adapted_once_and_remembered(chat_server):
    chat_server.answer = refusing
    policy = policy_for(chat_server, retries=0)
    assert ask(policy).reply.content == "hello"
    assert len(chat_server.requests) == 3
    assert chat_server.requests[-1]["max_completion_tokens"] == Sampling().max_tokens
    assert ask(policy).reply.content == "hello"
    assert len(chat_server.requests) == 4


def test_a_refusal_that_no_change_of_parameters_mends_is_raised(chat_server):
    chat_server.answer = lambda _: (400, {"error": {"message": "the model does not exist"}})
    with pytest.raises(InfrastructureError, match="does not exist"):
        ask(policy_for(chat_server, retries=0))
    assert len(chat_server.requests) == 1
