"""Token policies record turns and chat policies do not; both spend the rollout's budget."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Sequence
from dataclasses import replace

import pytest
from agents import Agent, function_tool
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparring.contracts.cases import Case
from sparring.contracts.errors import InfrastructureError
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
from sparring.contracts.rollouts import (
    Message,
    RequestedCall,
    ResultBody,
    RolloutKey,
    RowStart,
    TokenKind,
)
from sparring.contracts.specs import Limits
from sparring.player import Play, Player
from sparring.player.episode import Episode, EpisodeOver
from sparring.player.recorder import (
    Answer,
    ModelCall,
    PromptWriter,
    Recorder,
    SampledTurn,
    all_kept,
    digest,
    rows_of,
    with_output_schema,
)
from sparring.policies.codec import ChatCodec
from sparring.policies.families import family_named
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.conftest import FAMILIES
from tests.gateway.playing import SDK_AGENT, TOOLS, gateway_agent, plain_play, play_all
from tests.policies.family_codecs import codec_of

SYSTEM, USER = Message("system", "Be brief."), Message("user", "How warm is it?")
CALL = ModelCall((SYSTEM, USER))
MORE = [Message("user", "And tomorrow?")]


@pytest.fixture
def codec(codecs: dict[str, ChatCodec]) -> ChatCodec:
    return codecs["qwen3"]


class Chat:
    """Remembers its requests."""

    name = "chat"

    def __init__(self) -> None:
        self.requests: list[ChatRequest] = []

    async def reply(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        return ChatReply(Reply("7 degrees"), Finish.STOP, prompt_tokens=11, sampled_tokens=3)


def scripted(codec: ChatCodec, reply: str = "7 degrees") -> ScriptedPolicy:
    def script(_: SampleRequest) -> str:
        return reply

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


def test_a_call_that_continues_no_turn_starts_a_row_with_its_cause(codec: ChatCodec) -> None:
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


def test_tokens_after_the_first_prompt_count_against_the_budget(codec: ChatCodec) -> None:
    played = Played(scripted(codec))
    turn, first = played.respond(CALL)
    assert played.episode.spent == first.tokens
    played.respond(ModelCall(MORE, continues=turn))
    (row,) = played.recorder.rows()
    assert played.episode.spent == len(row.ids) - first.prompt_tokens


def test_a_call_without_budget_samples_nothing_and_makes_no_row(codec: ChatCodec) -> None:
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


KIND = Message("system", "Be kind.")
OFFER = ModelCall((SYSTEM, KIND, USER), tuple(TOOLS))


def test_the_system_text_is_what_precedes_the_first_turn():
    assert OFFER.first_turn == 2
    assert OFFER.system == "Be brief.\n\nBe kind."
    assert ModelCall((USER, SYSTEM)).system == ""
    assert ModelCall((SYSTEM,)).first_turn == 1


def test_tools_are_known_by_name():
    assert OFFER.tool_names == ["add", "multiply"]


def test_instructions_tools_and_schema_make_the_frame():
    same = replace(OFFER, messages=(SYSTEM, KIND, Message("user", "another")), max_tokens=3)
    assert same.frame == OFFER.frame
    others = [
        replace(OFFER, messages=(SYSTEM, USER)),
        replace(OFFER, tools=OFFER.tools[:1]),
        replace(OFFER, output_schema={"type": "object"}),
    ]
    assert len({OFFER.frame, *(each.frame for each in others)}) == 4


def test_calls_with_other_parameters_are_not_equal():
    changes = [{"tool_choice": "add"}, {"max_tokens": 1}, {"stop": ("x",)}]
    changes += [{"parallel_tool_calls": False}]
    parameters = {replace(OFFER, **change).parameters() for change in changes}
    assert len({OFFER.parameters(), *parameters}) == 5
    assert replace(OFFER, overridden={"temperature": 0.1}).parameters() == OFFER.parameters()


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_different_texts_have_different_digests(some, others):
    assert (digest(*some) == digest(*others)) is (some == others)


def test_the_schema_of_the_output_follows_the_instructions():
    schema = {"type": "object"}
    request = 'Give your final answer as JSON that fits this schema:\n{"type": "object"}'
    messages = ModelCall((SYSTEM, USER), output_schema=schema).rendered()
    assert messages == [Message("system", f"Be brief.\n\n{request}"), USER]
    assert ModelCall((USER,), output_schema=schema).rendered() == [Message("system", request), USER]


def test_equal_schemas_are_written_alike():
    one, other = {"type": "object", "title": "W"}, {"title": "W", "type": "object"}
    assert with_output_schema("", one) == with_output_schema("", other)


def test_only_the_leading_messages_are_joined_to_instructions():
    call = ModelCall((SYSTEM, KIND, USER), leading=1)
    assert call.rendered() == [SYSTEM, KIND, USER]
    assert OFFER.rendered() == [Message("system", "Be brief.\n\nBe kind."), USER]


class Made:
    """Makes turns with tokens unlike all others, as a recorder does."""

    def __init__(self):
        self.turns = []
        self._token = 0

    def tokens(self, number):
        self._token += number
        return array("i", range(self._token - number, self._token))

    def turn(self, before=None, *, agent="main", sampled=2, opening=0, is_continuation=True):
        """A turn in a row of its own, or one that continues another."""
        continues = before is not None and is_continuation
        tokens = before.tokens[: before.end] if continues else self.tokens(4)
        given = len(tokens)
        tokens += self.tokens(3) if continues else array("i")
        forced, ids = self.tokens(opening), self.tokens(sampled)
        number = len(self.turns)
        made = SampledTurn(
            number=number,
            agent=agent,
            tokens=tokens + forced + ids,
            start=len(tokens) + opening,
            before=before,
            is_continuation=continues,
            row_start=RowStart.HISTORY if before is not None else RowStart.FIRST,
            bodies=[ResultBody("add", given, len(tokens))] if continues else (),
            opening=forced,
            sample=Sample(ids, array("f", [-float(number + 1)] * sampled), Finish.STOP, number % 2),
        )
        self.turns.append(made)
        return made


def sampled_ids(row):
    place, found = 0, []
    for span in row.spans:
        if span.kind is TokenKind.SAMPLED:
            found += row.ids[place : place + span.length]
        place += span.length
    assert place == len(row.ids)
    return found


steps = st.lists(
    st.tuples(st.integers(-1, 20), st.booleans(), st.booleans(), st.integers(0, 2)), max_size=14
)


def grown(steps):
    """Random branches of two agents, some of them discarded. Each step continues or follows a turn,
    or begins anew."""
    made, discarded = Made(), set()
    for before, is_other, is_discarded, opening in steps:
        base = made.turns[before % len(made.turns)] if made.turns and before >= 0 else None
        agent = "other" if is_other else "main"
        turn = made.turn(base, agent=agent, opening=opening, is_continuation=before % 3 != 1)
        if is_discarded:
            discarded.add(turn)
    return made.turns, discarded


@given(steps)
def test_each_sampled_token_is_in_one_row_with_its_log_probability(steps):
    turns, discarded = grown(steps)
    rows = rows_of(turns, discarded)
    found = [token for row in rows for token in sampled_ids(row)]
    assert sorted(found) == sorted(token for turn in turns for token in turn.sample.ids)
    by_token = {
        token: logprob
        for turn in turns
        for token, logprob in zip(turn.sample.ids, turn.sample.logprobs, strict=True)
    }
    thrown = {token for turn in discarded for token in turn.sample.ids}
    for row in rows:
        assert [by_token[token] for token in sampled_ids(row)] == list(row.logprobs)
        assert sum(length for _, length in row.versions) == len(row.logprobs)
        assert {token in thrown for token in sampled_ids(row)} == {row.is_discarded}


@given(steps)
def test_the_tokens_before_a_sampled_one_in_its_row_are_those_it_was_sampled_from(steps):
    turns, discarded = grown(steps)
    starts = {turn.sample.ids[0]: turn for turn in turns}
    for row in rows_of(turns, discarded):
        place = 0
        for span in row.spans:
            if span.kind is TokenKind.SAMPLED:
                turn = starts[row.ids[place]]
                assert row.ids[:place] == turn.tokens[: turn.start]
                assert turn.agent == row.agent
            place += span.length


@given(steps)
def test_rows_name_the_row_that_they_follow(steps):
    turns, discarded = grown(steps)
    rows = rows_of(turns, discarded)
    owner = {token: place for place, row in enumerate(rows) for token in sampled_ids(row)}
    first = {turn.sample.ids[0]: turn for turn in turns}
    for row in rows:
        before = first[sampled_ids(row)[0]].before
        assert row.parent == (None if before is None else owner[before.sample.ids[0]])


def test_a_conversation_is_one_row_with_the_results_of_its_tools():
    made = Made()
    made.turn(made.turn())
    (row,) = rows_of(made.turns)
    assert [span.kind for span in row.spans] == ["prompt", "sampled", "observed", "sampled"]
    assert (row.start, row.parent, row.agent) == (RowStart.FIRST, None, "main")
    assert row.bodies == (ResultBody("add", 6, 9),)


def test_forced_tokens_are_observed_in_a_span_of_their_own():
    made = Made()
    made.turn(made.turn(opening=1), opening=2)
    (row,) = rows_of(made.turns)
    spans = [(span.kind.value, span.length) for span in row.spans]
    first, second = [("prompt", 4), ("observed", 1)], [("observed", 3), ("observed", 2)]
    assert spans == [*first, ("sampled", 2), *second, ("sampled", 2)]


def test_a_row_of_an_ended_rollout_ends_with_what_the_model_did_not_answer():
    made = Made()
    last = made.turn(made.turn())
    last.sample = None
    del last.tokens[last.start :]
    (row,) = rows_of(made.turns)
    assert [span.kind for span in row.spans] == ["prompt", "sampled", "observed"]
    assert len(row.ids) == sum(span.length for span in row.spans)
    made.turns[0].sample = None
    assert rows_of(made.turns[:1]) == []


def test_a_second_continuation_copies_the_tokens_and_leaves_the_first(codecs):
    codec = codecs["qwen3"]
    writer = PromptWriter(codec, lambda _: None)
    prompt = writer.render([Message("user", "one")], ())
    ids = codec.encode_reply(Message("assistant", "First."))
    sample = Sample(ids, array("f", [0.0] * len(ids)), Finish.STOP)
    turn = SampledTurn(0, "main", prompt + ids, len(prompt), sample=sample)
    left, _ = writer.extend(turn, [Message("user", "left")])
    right, _ = writer.extend(turn, [Message("user", "right")])
    assert left is turn.tokens
    assert codec.decode(right) == codec.decode(left).replace("left", "right")


CALL_TEXT = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'


def script(request):
    replies = [f"<think>add them</think>{CALL_TEXT}", CALL_TEXT, "<think>done</think>It is 5."]
    return replies[request.key.turn]


@pytest.mark.parametrize(("history", "rows"), [("drop", 2), ("keep", 1)])
def test_rows_are_those_of_the_sdk_whether_thinking_is_dropped_or_kept(codecs, history, rows):
    family = family_named("qwen3").adapted(history_thinking=history)
    policy = ScriptedPolicy(script, ChatCodec(codecs["qwen3"].tokenizer, family))
    (ours,) = play_all(gateway_agent(plain_play()), policy)
    (theirs,) = play_all(SDK_AGENT, policy)
    assert len(ours.rows) == rows
    assert [row.ids for row in ours.rows] == [row.ids for row in theirs.rows]
    assert [row.spans for row in ours.rows] == [row.spans for row in theirs.rows]
    assert [(row.start, row.parent) for row in ours.rows] == [
        (row.start, row.parent) for row in theirs.rows
    ]
    assert not any(row.is_discarded for row in ours.rows)


def test_values_get_the_types_of_the_schema_that_the_client_sent(codecs):
    tags = "<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n</function>\n</tool_call>"
    codec = ChatCodec(codecs["qwen3"].tokenizer, family_named("qwen3-coder"))
    policy = ScriptedPolicy(lambda request: [tags, "2"][request.key.turn], codec)
    tools = [
        {
            "type": "function",
            "function": {
                "name": "add",
                "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
            },
        }
    ]
    (rollout,) = play_all(gateway_agent(plain_play(tools=tools)), policy)
    (message,) = [each for each in rollout.messages if each.calls]
    assert json.loads(message.calls[0].arguments) == {"a": "2"}


@pytest.mark.parametrize("name", ["gpt-oss", "gemma4"])
def test_results_carry_the_names_of_their_tools_as_on_the_sdk(name):
    call = RequestedCall("c", "add", '{"a": 2, "b": 3}')
    turns = [Message("assistant", "", calls=(call,)), Message("assistant", "It is 5.")]
    policy = ScriptedPolicy(lambda request: turns[request.key.turn], codec_of(name))
    (ours,) = play_all(gateway_agent(plain_play()), policy)
    (theirs,) = play_all(SDK_AGENT, policy)
    assert [row.ids for row in ours.rows] == [row.ids for row in theirs.rows]
    (row,) = ours.rows
    assert "add" in policy.codec.decode(row.ids).rpartition("It is 5.")[0][-120:]


def test_an_answer_that_is_rewritten_later_cannot_be_spliced():
    answer = Message("assistant", "It is 5.")
    assert all_kept([Message("user", "?"), answer], codec_of("gemma4"))
    assert not all_kept([Message("user", "?"), answer], codec_of("gpt-oss"))


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@function_tool
def echo(text: str) -> str:
    """Say it back."""
    return text


@function_tool
def explode(text: str) -> str:
    """Fail with these words."""
    raise ValueError(text)


ECHOING = Agent(name="a", instructions="Play. ä", tools=[echo, explode])


def written(family: str, tool: str, argument: str) -> str:
    arguments = {"text": argument}
    if family == "llama3":
        return json.dumps({"name": tool, "parameters": arguments})
    body = json.dumps({"name": tool, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def turns(family: str):
    """What a model says while it has not answered: calls that work, fail, or do not exist."""
    tool = st.sampled_from(["echo", "explode", "nobody"])
    calls = st.builds(lambda name, answer: written(family, name, answer), tool, text)
    thought = st.builds(lambda thinking, answer: f"<think>{thinking}</think>{answer}", text, calls)
    return st.lists(
        st.one_of(calls, thought) if family in ("qwen3", "forgetful") else calls, max_size=5
    )


answers = st.one_of(text, st.just(""), st.just("<tool_call>{broken"), st.just('{"name": "echo", '))


class Remembering(ScriptedPolicy):
    """Keeps every sample and every prompt it was given."""

    def __init__(self, script, codec):
        super().__init__(script, codec)
        self.samples: list[Sample] = []
        self.prompts: list[array] = []

    async def sample(self, request):
        self.prompts.append(array("i", request.prompt))
        sample = await super().sample(request)
        logprobs = array("f", [-0.5 * n for n in range(len(sample.ids))])
        self.samples.append(Sample(sample.ids, logprobs, sample.finish))
        return self.samples[-1]


def remembered(codec, replies, question):
    policy = Remembering(lambda request: replies[request.key.turn], codec)
    player = Player(ECHOING, policy, limits=Limits(completion_tokens=100_000, max_turns=10))
    rollout = asyncio.run(
        player.play_one(Play(RolloutKey(0, 0, "c", 0), Case("c", question or "?")))
    )
    return policy, rollout


def segments(row, kind):
    found, start = [], 0
    for span in row.spans:
        if span.kind is kind:
            found.append(row.ids[start : start + span.length])
        start += span.length
    return found


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_rows_hold_exactly_what_was_sampled_and_shown(codecs, family, data):
    codec = codecs[family]
    replies = [*data.draw(turns(family)), data.draw(answers)]
    policy, rollout = remembered(codec, replies, data.draw(text))
    played = len(policy.samples)
    (row,) = rollout.rows

    # Sampled tokens = mask sum, and every sampled token has one log-probability.
    sampled = sum(len(sample.ids) for sample in policy.samples)
    assert sum(row.mask()) == sampled == len(row.logprobs) == rollout.tokens.sampled
    assert len(row.mask()) == len(row.ids) == sum(span.length for span in row.spans)

    # Zero drift: the sampled stretches are the samples, and each prompt is a beginning of the row.
    assert segments(row, TokenKind.SAMPLED) == [sample.ids for sample in policy.samples]
    assert row.logprobs == array("f", [n for sample in policy.samples for n in sample.logprobs])
    for prompt in policy.prompts:
        assert row.ids[: len(prompt)] == prompt

    # Decoding the row gives the transcript.
    observed = [codec.decode(ids) for ids in segments(row, TokenKind.OBSERVED)]
    expected = codec.decode(policy.prompts[0])
    for number, words in enumerate(replies[:played]):
        expected += words + codec.family.end_of_turn
        expected += observed[number] if number < len(observed) else ""
    assert codec.decode(row.ids) == expected
    for results, call in zip(observed, rollout.tool_calls, strict=False):
        shown = json.dumps(call.result, ensure_ascii=False) if family == "llama3" else call.result
        assert shown in results

    # The body of each result is found, scaffolding left out.
    assert [body.tool for body in row.bodies] == [call.tool for call in rollout.tool_calls][
        : len(row.bodies)
    ]
    for body, call in zip(row.bodies, rollout.tool_calls, strict=False):
        shown = json.dumps(call.result, ensure_ascii=False) if family == "llama3" else call.result
        inside = codec.decode(row.ids[body.start : body.stop])
        assert inside in shown
        assert len(inside) >= len(shown) - 8
