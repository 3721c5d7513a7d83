"""Token policies record rows and chat policies do not; both spend the rollout's budget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from agents import ModelSettings

from sparring.contracts.cases import Case
from sparring.contracts.limits import Limits
from sparring.contracts.policies import ChatReply, ChatRequest, Finish, Reply, SampleRequest
from sparring.contracts.rollouts import Message, RolloutKey, TokenKind
from sparring.player.conversation import to_items
from sparring.player.episode import Episode, EpisodeOver
from sparring.player.model_adapters import AdapterReply, ChatAdapter, TokenAdapter, adapter_for
from sparring.player.prompts import Prompt
from sparring.policies.codec import ChatCodec
from sparring.policies.scripted_policy import ScriptedPolicy

QUESTION = {"role": "user", "content": "How warm is it?"}


@pytest.fixture
def codec(codecs: dict[str, ChatCodec]) -> ChatCodec:
    return codecs["qwen3"]


class Chat:
    """Remembers what it was asked."""

    name = "chat"

    def __init__(self) -> None:
        self.requests: list[ChatRequest] = []

    async def reply(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        return ChatReply(Reply("7 degrees"), Finish.STOP, prompt_tokens=11, sampled_tokens=3)


def episode(budget: int = 1024) -> Episode:
    limits = Limits(completion_tokens=budget)
    return Episode(RolloutKey(0, 0, "c", 0), Case("c", "question"), limits)


def scripted(codec: ChatCodec, said: str = "7 degrees") -> ScriptedPolicy:
    def script(_: SampleRequest) -> str:
        return said

    return ScriptedPolicy(script, codec)


def prompt(items: Sequence[Any] = (QUESTION,), system: str = "Be brief.") -> Prompt:
    return Prompt(system, items, (), None)


def respond(
    adapter: Any, played: Episode, asked: Prompt, settings: ModelSettings | None = None
) -> AdapterReply:
    turn = played.begin_turn()
    reply = asyncio.run(adapter.respond(turn, asked, settings or ModelSettings()))
    reply.note_reply(Message("assistant", reply.reply.content), turn.number)
    return reply


def continued(asked: Prompt, answer: AdapterReply, turn: int) -> list[Any]:
    """The items of the next turn, in which the user asks once more."""
    own = [item.model_dump(exclude_unset=True) for item in to_items(answer.reply, [], turn)]
    return [*asked.items, *own, {"role": "user", "content": "And tomorrow?"}]


def test_the_adapter_fits_the_kind_of_policy(codec: ChatCodec) -> None:
    assert isinstance(adapter_for(scripted(codec), episode(), 1.0), TokenAdapter)
    assert isinstance(adapter_for(Chat(), episode(), 1.0), ChatAdapter)


def test_a_turn_that_only_appends_continues_its_row(codec: ChatCodec) -> None:
    played = episode()
    adapter = TokenAdapter(scripted(codec), played, 1.0)
    first = respond(adapter, played, prompt())
    second = respond(adapter, played, prompt(continued(prompt(), first, 0)))
    (row,) = adapter.rows()
    kinds = [span.kind for span in row.spans]
    assert kinds == [TokenKind.PROMPT, TokenKind.SAMPLED, TokenKind.OBSERVED, TokenKind.SAMPLED]
    assert row.sampled == first.tokens + second.tokens
    assert second.prompt_tokens + second.tokens == len(row.ids)


@pytest.mark.parametrize("change", ["instructions", "history"])
def test_a_turn_that_changes_what_came_before_starts_a_new_row(
    codec: ChatCodec, change: str
) -> None:
    played = episode()
    adapter = TokenAdapter(scripted(codec), played, 1.0)
    items = continued(prompt(), respond(adapter, played, prompt()), 0)
    if change == "history":
        items[0] = {"role": "user", "content": "How cold is it?"}
    respond(adapter, played, prompt(items, "Be long." if change == "instructions" else "Be brief."))
    first, second = adapter.rows()
    assert [span.kind for span in second.spans] == [TokenKind.PROMPT, TokenKind.SAMPLED]
    assert first.sampled == second.sampled


def test_everything_after_the_first_prompt_is_spent(codec: ChatCodec) -> None:
    played = episode()
    adapter = TokenAdapter(scripted(codec), played, 1.0)
    first = respond(adapter, played, prompt())
    assert played.spent == first.tokens
    respond(adapter, played, prompt(continued(prompt(), first, 0)))
    (row,) = adapter.rows()
    assert played.spent == len(row.ids) - first.prompt_tokens


def test_without_budget_the_policy_is_not_asked_and_there_is_no_row(codec: ChatCodec) -> None:
    played = episode(budget=5)
    played.spent = 5
    adapter = TokenAdapter(scripted(codec), played, 1.0)
    with pytest.raises(EpisodeOver):
        respond(adapter, played, prompt())
    assert adapter.rows() == []


def test_a_reply_is_cut_at_what_is_left_of_the_budget(codec: ChatCodec) -> None:
    played = episode(budget=6)
    reply = respond(TokenAdapter(scripted(codec, "word " * 50), played, 1.0), played, prompt())
    assert (reply.tokens, reply.finish) == (6, Finish.LENGTH)


def test_the_usage_of_a_reply_adds_up() -> None:
    usage = AdapterReply(Reply("x"), Finish.STOP, prompt_tokens=11, tokens=3).usage
    assert (usage.requests, usage.input_tokens, usage.output_tokens) == (1, 11, 3)
    assert usage.total_tokens == 14


def test_chat_gets_the_instructions_first_and_has_no_rows() -> None:
    played, policy = episode(budget=100), Chat()
    adapter = ChatAdapter(policy, played, 0.7)
    settings = ModelSettings(tool_choice="required", parallel_tool_calls=False)
    reply = respond(adapter, played, prompt(), settings)
    (request,) = policy.requests
    wanted = [Message("system", "Be brief."), Message("user", "How warm is it?")]
    assert list(request.messages) == wanted
    assert (request.sampling.temperature, request.sampling.max_tokens) == (0.7, 100)
    assert (request.tool_choice, request.parallel_tool_calls) == ("required", False)
    assert adapter.rows() == []
    assert (reply.reply.content, played.spent) == ("7 degrees", 3)
    assert played.finish([], None, None).tokens.prompt == 11


def test_chat_without_instructions_gets_the_conversation_alone() -> None:
    played, policy = episode(), Chat()
    respond(ChatAdapter(policy, played, 0.7), played, prompt(system=""))
    assert list(policy.requests[0].messages) == [Message("user", "How warm is it?")]
