"""Token policies record turns and chat policies do not; both spend the rollout's budget."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence

import pytest

from sparring.contracts.cases import Case
from sparring.contracts.errors import InfrastructureError
from sparring.contracts.limits import Limits
from sparring.contracts.policies import (
    ChatReply,
    ChatRequest,
    Finish,
    Policy,
    Reply,
    Sample,
    SampleRequest,
    Sampling,
)
from sparring.contracts.rollouts import Message, RolloutKey, RowStart, TokenKind
from sparring.player.episode import Episode, EpisodeOver
from sparring.player.model_call import ModelCall
from sparring.player.recorder import Answer, Recorder
from sparring.player.turns import SampledTurn
from sparring.policies.codec import ChatCodec
from sparring.policies.scripted_policy import ScriptedPolicy

SYSTEM, USER = Message("system", "Be brief."), Message("user", "How warm is it?")
CALL = ModelCall((SYSTEM, USER))
MORE = [Message("user", "And tomorrow?")]


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


def scripted(codec: ChatCodec, said: str = "7 degrees") -> ScriptedPolicy:
    def script(_: SampleRequest) -> str:
        return said

    return ScriptedPolicy(script, codec)


class Played:
    """An episode with a recorder for its calls."""

    def __init__(self, policy: Policy, budget: int = 1024) -> None:
        limits = Limits(completion_tokens=budget)
        self.episode = Episode(RolloutKey(0, 0, "c", 0), Case("c", "question"), limits)
        self.recorder = Recorder(policy, self.episode)

    def respond(
        self,
        call: ModelCall,
        before: SampledTurn | None = None,
        row_start: RowStart = RowStart.FIRST,
    ) -> tuple[SampledTurn, Answer]:
        turn = self.episode.begin_turn()
        sampled = self.recorder.begin(turn.number, "main", call, before, row_start)
        self.recorder.turns.append(sampled)
        sampling = Sampling(0.7, self.episode.tokens_left())
        return sampled, asyncio.run(self.recorder.answer(sampled, turn.key, call, sampling))

    def kinds(self) -> list[list[TokenKind]]:
        return [[span.kind for span in row.spans] for row in self.recorder.rows()]


def test_a_call_that_continues_a_turn_extends_its_row(codec: ChatCodec) -> None:
    played = Played(scripted(codec))
    turn, first = played.respond(CALL)
    _, second = played.respond(ModelCall(MORE, continues=turn))
    (row,) = played.recorder.rows()
    kinds = [TokenKind.PROMPT, TokenKind.SAMPLED, TokenKind.OBSERVED, TokenKind.SAMPLED]
    assert played.kinds() == [kinds]
    assert row.sampled == first.tokens + second.tokens
    assert second.prompt_tokens + second.tokens == len(row.ids)


def test_any_other_call_starts_a_row_that_names_its_cause(codec: ChatCodec) -> None:
    played = Played(scripted(codec))
    turn, _ = played.respond(CALL)
    played.respond(CALL, turn, RowStart.HANDOFF)
    first, second = played.recorder.rows()
    assert (first.start, second.start, second.parent) == (RowStart.FIRST, RowStart.HANDOFF, 0)
    assert played.kinds()[1] == [TokenKind.PROMPT, TokenKind.SAMPLED]


def test_a_branch_starts_a_row_whose_prompt_holds_the_sampled_tokens(codec: ChatCodec) -> None:
    played = Played(scripted(codec))
    turn, _ = played.respond(CALL)
    played.respond(ModelCall(MORE, continues=turn))
    played.respond(ModelCall(MORE, continues=turn))
    first, second = played.recorder.rows()
    assert first.ids == second.ids
    assert (second.start, second.parent) == (RowStart.HISTORY, 0)
    assert [span.kind for span in second.spans] == [TokenKind.PROMPT, TokenKind.SAMPLED]


def test_everything_after_the_first_prompt_is_spent(codec: ChatCodec) -> None:
    played = Played(scripted(codec))
    turn, first = played.respond(CALL)
    assert played.episode.spent == first.tokens
    played.respond(ModelCall(MORE, continues=turn))
    (row,) = played.recorder.rows()
    assert played.episode.spent == len(row.ids) - first.prompt_tokens


def test_without_budget_the_policy_is_not_asked_and_there_is_no_row(codec: ChatCodec) -> None:
    played = Played(scripted(codec), budget=5)
    played.episode.spent = 5
    with pytest.raises(EpisodeOver):
        played.respond(CALL)
    assert played.recorder.rows() == []


def test_a_reply_is_cut_at_what_is_left_of_the_budget(codec: ChatCodec) -> None:
    turn, reply = Played(scripted(codec, "word " * 50), budget=6).respond(CALL)
    assert (reply.tokens, reply.finish, turn.is_cut_off) == (6, Finish.LENGTH, True)


@pytest.mark.parametrize(("ids", "logprobs"), [([], []), ([1, 2], [-0.5]), ([1], [-0.5, -0.5])])
def test_a_token_without_a_log_probability_is_a_fault_of_the_policy(
    codec: ChatCodec, ids: Sequence[int], logprobs: Sequence[float]
) -> None:
    class Faulty(ScriptedPolicy):
        async def sample(self, request: SampleRequest) -> Sample:
            return Sample(array("i", ids), array("f", logprobs), Finish.STOP)

    played = Played(Faulty(lambda _: "", codec))
    with pytest.raises(InfrastructureError, match="each sampled token needs one"):
        played.respond(CALL)
    assert played.recorder.rows() == []


def test_a_chat_policy_gets_the_whole_call_and_has_no_rows() -> None:
    policy = Chat()
    played = Played(policy, budget=100)
    call = ModelCall((SYSTEM, USER), tool_choice="required", parallel_tool_calls=False)
    _, answer = played.respond(call)
    (request,) = policy.requests
    assert request.messages == (SYSTEM, USER)
    assert (request.sampling.temperature, request.sampling.max_tokens) == (0.7, 100)
    assert (request.tool_choice, request.parallel_tool_calls) == ("required", False)
    assert played.recorder.rows() == []
    assert (answer.reply.content, played.episode.spent) == ("7 degrees", 3)
    assert played.episode.finish([], None, None).tokens.prompt == 11
