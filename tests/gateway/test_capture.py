"""Invariants of captured calls over random interleavings: branches, retries, parallel calls,
respaced arguments, edited histories, clients that go away."""

import asyncio
import json
from array import array
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.cases import Case
from sparring.contracts.policies import Sample
from sparring.contracts.rollouts import Message, RequestedCall, RolloutKey, TokenKind
from sparring.contracts.specs import Limits
from sparring.gateway.capture import Capture, Exchange, first_stop
from sparring.gateway.wire import MAIN, FinishReason, ModelReply, Refused
from sparring.player.episode import Episode
from sparring.player.recorder import ModelCall
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.conftest import FAMILIES
from tests.gateway.playing import TOOLS

LIMITS = Limits(max_turns=101, completion_tokens=1 << 20)
USER = Message("user", "What is 2 + 3?")


class Recording(ScriptedPolicy):
    """Writes a reply unlike every other, every third with a call, and keeps prompts and samples."""

    def __init__(self, codec):
        super().__init__(self.next_reply, codec)
        self.sampled = []

    def next_reply(self, request):
        number = len(self.sampled)
        if number % 3 == 1:
            call = RequestedCall("c", "add", json.dumps({"a": number, "b": [1, {"x": 2}]}))
            return Message("assistant", f"call {number}", calls=(call,))
        return f"reply {number}"

    async def sample(self, request):
        prompt = array("i", request.prompt)
        await asyncio.sleep(0)
        sample = await super().sample(request)
        unlike = array("f", [-(len(self.sampled) + 1) / 1024] * len(sample.ids))
        sample = Sample(sample.ids, unlike, sample.finish)
        self.sampled.append((prompt, sample))
        return sample


class Driver:
    """Makes calls as clients do, and remembers the conversations that they had."""

    def __init__(self, codec, policy=Recording):
        self.policy = policy(codec)
        self.episode = Episode(RolloutKey(0, 0, "c", 0), Case("c", "What is 2 + 3?"), LIMITS)
        self.capture = Capture(self.episode, self.policy, 0.8)
        self.conversations = []
        self.calls = []

    async def send(self, call, *, is_delivered=True):
        exchange = self.capture.begin(call)
        reply = await asyncio.shield(exchange.task)
        exchange.is_delivered = exchange.is_delivered or is_delivered
        answer = Message("assistant", reply.content, calls=reply.calls)
        self.conversations.append((*call.messages, answer))
        self.calls.append((call, reply))
        return reply

    def more(self, place):
        """The call that continues a conversation by itself."""
        messages = self.conversations[place % len(self.conversations)]
        last = messages[-1]
        results = [Message("tool", f"result of {call.id}", call_id=call.id) for call in last.calls]
        return call_of(*messages, *(results or [Message("user", "Go on.")]))

    async def do(self, step):
        kind, place, other = step
        if not self.conversations or kind == "start":
            await self.send(call_of(Message("system", f"You are {place % 2}."), USER))
        elif kind == "continue":
            await self.send(self.more(place))
        elif kind == "respace":
            await self.send(respaced(self.more(place)))
        elif kind == "edit":
            await self.send(edited(self.more(place), other))
        elif kind == "again":
            await self.send(self.calls[place % len(self.calls)][0])
        elif kind == "retry":
            call, reply = self.calls[-1]
            again = await self.send(replace(call, is_retry=True))
            assert again == reply
        elif kind == "drop":
            await self.drop(self.more(place))
        elif kind == "parallel":
            await asyncio.gather(self.send(self.more(place)), self.send(self.more(other)))

    def tokens_of(self, text):
        """The number of tokens of a text, without the end of the turn."""
        return len(self.policy.codec.encode_reply(Message("assistant", text))) - 1

    async def drop(self, call):
        """A client goes away while its call is pending; the same call gets that reply."""
        before = len(self.policy.sampled)
        waiting = asyncio.create_task(self.send(call))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await self.send(call)
        assert len(self.policy.sampled) - before <= 1


def call_of(*messages):
    return ModelCall(tuple(messages), tuple(TOOLS))


def respaced(call):
    def respace(text):
        return json.dumps(json.loads(text), indent=3, sort_keys=True)

    messages = [
        replace(
            message,
            calls=tuple(replace(each, arguments=respace(each.arguments)) for each in message.calls),
        )
        for message in call.messages
    ]
    return call_of(*messages)


def edited(call, place):
    messages = list(call.messages)
    where = place % len(messages)
    messages[where] = replace(messages[where], content=f"edited {place % 3}")
    return call_of(*messages)


kinds = st.sampled_from(
    ["start", "continue", "continue", "respace", "edit", "again", "retry", "drop", "parallel"]
)
steps = st.lists(st.tuples(kinds, st.integers(0, 40), st.integers(0, 40)), max_size=14)


def contains(ids, part):
    first, rest = ids.tobytes(), part.tobytes()
    start = first.find(rest)
    while start >= 0 and start % ids.itemsize:
        start = first.find(rest, start + 1)
    return start >= 0


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=25)
@given(steps=steps)
def test_each_sampled_token_is_in_one_row_after_the_prompt_it_was_sampled_from(
    codecs, family, steps
):
    async def play():
        driver = Driver(codecs[family])
        for step in steps:
            await driver.do(step)
        return driver

    driver = asyncio.run(play())
    rows = driver.capture.rows()
    samples = {sample.logprobs[0]: (prompt, sample) for prompt, sample in driver.policy.sampled}
    assert len(samples) == len(driver.policy.sampled)
    for row in rows:
        assert row.spans[0].kind is TokenKind.PROMPT
        assert sum(span.length for span in row.spans) == len(row.ids)
        place, logprob = 0, 0
        for span in row.spans:
            if span.kind is TokenKind.SAMPLED:
                prompt, sample = samples.pop(row.logprobs[logprob])
                assert row.ids[:place] == prompt
                assert row.ids[place : place + span.length] == sample.ids
                assert row.logprobs[logprob : logprob + span.length] == sample.logprobs
                logprob += span.length
            place += span.length
        assert logprob == len(row.logprobs)
    assert not samples, "a sample is in no row"


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=25)
@given(steps=steps)
def test_replies_that_come_back_unchanged_are_spliced(codecs, family, steps):
    async def play():
        driver = Driver(codecs[family])
        for step in steps:
            await driver.do(step)
        return driver

    driver = asyncio.run(play())
    parse = driver.policy.codec.parse
    sampled = {
        identity(parse(sample.ids)): (prompt, sample.ids)
        for prompt, sample in driver.policy.sampled
    }
    for call, reply in driver.calls:
        prompt, _ = sampled[identity(reply)]
        for message in call.messages:
            if message.role == "assistant" and identity(message) in sampled:
                assert contains(prompt, sampled[identity(message)][1])


def identity(reply):
    """What no two replies of a recording policy share."""
    return (reply.content, *(str(json.loads(call.arguments)) for call in reply.calls))


def run(codec, work):
    async def play():
        driver = Driver(codec)
        await work(driver)
        return driver

    return asyncio.run(play())


def test_a_plain_conversation_is_one_row(codecs):
    async def work(driver):
        await driver.send(call_of(USER))
        for _ in range(4):
            await driver.send(driver.more(-1))

    driver = run(codecs["qwen3"], work)
    (row,) = driver.capture.rows()
    assert row.agent == MAIN
    assert sum(span.kind is TokenKind.SAMPLED for span in row.spans) == 5


def test_seeds_depend_on_the_place_and_not_on_the_order(codecs):
    """Two branches of one reply, in either order, and two sub-agents."""

    def keys(order):
        seen = {}

        class Noting(Recording):
            async def sample(self, request):
                seen[request.prompt.tobytes()] = request.key.seed()
                return await super().sample(request)

        async def work():
            driver = Driver(codecs["qwen3"], Noting)
            await driver.send(call_of(USER))
            first = driver.conversations[0]
            calls = [
                call_of(*first, Message("user", "left")),
                call_of(*first, Message("user", "right"), Message("user", "more")),
                call_of(Message("system", "helper"), Message("user", "x")),
            ]
            for place in order:
                await driver.capture.begin(calls[place]).task

        asyncio.run(work())
        return seen

    assert keys([0, 1, 2]) == keys([2, 1, 0])
    assert len(set(keys([0, 1, 2]).values())) == 4


def test_equal_calls_after_a_delivered_reply_get_seeds_of_their_own(codecs):
    async def work(driver):
        for _ in range(3):
            await driver.send(call_of(USER))

    driver = run(codecs["qwen3"], work)
    assert driver.calls[0][0] == driver.calls[2][0]
    assert len({reply.content for _, reply in driver.calls}) == 3


def test_the_summary_that_replaces_a_history_is_learned_from(codecs):
    async def work(driver):
        await driver.send(call_of(USER))
        await driver.send(driver.more(-1))
        history = driver.conversations[-2]
        summary = await driver.send(call_of(*history, Message("user", "Summarise.")))
        await driver.send(call_of(Message("user", f"So far: {summary.content}. Go on.")))

    driver = run(codecs["qwen3"], work)
    rows = driver.capture.rows()
    assert not any(row.is_discarded for row in rows[:-1])


def test_a_rejected_summary_is_discarded(codecs):
    async def work(driver):
        await driver.send(call_of(USER))
        history = driver.conversations[-1]
        await driver.send(call_of(*history, Message("user", "Summarise.")))
        await driver.send(call_of(*history, Message("user", "Go on.")))

    driver = run(codecs["qwen3"], work)
    rows = driver.capture.rows()
    assert [row.is_discarded for row in rows] == [False, True]
    codec = codecs["qwen3"]
    assert "Summarise." in codec.decode(rows[1].ids)
    assert [span.kind for span in rows[0].spans] == ["prompt", "sampled", "observed", "sampled"]


def test_the_last_reply_answers_where_labels_name_no_main_agent(codecs):
    async def work(driver):
        driver.capture = Capture(driver.episode, driver.policy, 0.8, label=lambda _: "solver")
        reply = await driver.send(call_of(USER))
        assert driver.episode.answer == reply.content

    run(codecs["qwen3"], work)


def test_a_title_call_before_the_agents_first_call_does_not_become_main(codecs):
    async def work(driver):
        def label(call):
            return "title" if call.messages[-1].content == "A title?" else None

        driver.capture = Capture(driver.episode, driver.policy, 0.8, label=label)
        system = Message("system", "You name things.")
        await driver.send(call_of(system, Message("user", "A title?")))
        reply = await driver.send(call_of(USER))
        await driver.send(call_of(system, Message("user", "A title?")))
        assert driver.episode.answer == reply.content
        assert MAIN in {row.agent for row in driver.capture.rows()}

    run(codecs["qwen3"], work)


def test_a_side_call_does_not_answer_once_the_main_agent_has(codecs):
    async def work(driver):
        def label(call):
            return "title" if call.messages[-1].content == "A title?" else None

        driver.capture = Capture(driver.episode, driver.policy, 0.8, label=label)
        reply = await driver.send(call_of(USER))
        await driver.send(call_of(Message("user", "A title?")))
        assert driver.episode.answer == reply.content

    run(codecs["qwen3"], work)


def test_a_closed_session_takes_no_calls(codecs):
    async def work(driver):
        await driver.send(call_of(USER))
        driver.capture.close()
        with pytest.raises(Refused) as caught:
            await driver.send(driver.more(-1))
        assert caught.value.status == 410

    run(codecs["qwen3"], work)


def test_a_call_must_end_with_a_message_that_the_model_answers(codecs):
    async def work(driver):
        with pytest.raises(Refused) as caught:
            await driver.send(call_of(USER, Message("assistant", "Well")))
        assert caught.value.status == 400

    run(codecs["qwen3"], work)


def test_the_stop_sequence_that_comes_first_counts():
    assert first_stop("one, two; three", (";", ",")) == ","
    assert first_stop("one", (";", "")) == ""


def test_a_turn_that_was_cut_off_is_closed_before_the_next_message(codecs):
    async def work(driver):
        await driver.send(replace(call_of(USER), max_tokens=2))
        await driver.send(driver.more(-1))

    driver = run(codecs["qwen3"], work)
    (row,) = driver.capture.rows()
    codec = codecs["qwen3"]
    place = row.spans[0].length + 2
    assert row.ids[place] == codec.end_of_turn
    assert row.spans[2].kind is TokenKind.OBSERVED


def test_a_reply_is_cut_at_a_stop_sequence_and_counts_as_complete(codecs):
    async def work(driver):
        cut = replace(call_of(USER), stop=("ply",), max_tokens=driver.tokens_of("reply"))
        reply = await driver.send(cut)
        assert (reply.content, reply.stopped_at, reply.finish) == ("re", "ply", "stop")
        await driver.send(driver.more(-1))

    driver = run(codecs["qwen3"], work)
    assert len(driver.capture.rows()) == 1


def test_a_stop_sequence_before_the_end_of_the_budget_is_no_truncation(codecs):
    async def work(driver):
        left = driver.episode.tokens_left()
        driver.episode.spent += left - driver.tokens_of("reply")
        reply = await driver.send(replace(call_of(USER), stop=("ply",)))
        assert reply.finish is FinishReason.STOP

    assert run(codecs["qwen3"], work).episode.ending is None


def test_calls_after_a_stop_sequence_do_not_count(codecs):
    async def work(driver):
        await driver.send(call_of(USER))
        reply = await driver.send(replace(driver.more(-1), stop=(" 1",)))  # would call `add`
        assert (reply.content, reply.calls, reply.finish) == ("call", (), "stop")

    run(codecs["qwen3"], work)


def test_a_call_that_forbids_tools_belongs_to_the_same_agent_and_gets_text(codecs):
    async def work(driver):
        await driver.send(call_of(USER))
        reply = await driver.send(replace(driver.more(-1), tool_choice="none"))
        assert (reply.content, reply.calls, reply.finish) == ("call 1", (), "stop")

    driver = run(codecs["qwen3"], work)
    (row,) = driver.capture.rows()
    assert row.agent == MAIN
    assert driver.episode.answer == "call 1"


CALL = ModelCall((Message("user", "hello"),))
REPLY = ModelReply(0, "hi", "", (), FinishReason.STOP, 1, 1)


def exchange(work=None, **options):
    """An exchange whose task is done, unless the work waits."""

    async def answer():
        return REPLY if work is None else await work()

    async def start():
        task = asyncio.create_task(answer())
        await asyncio.wait([task], timeout=0.01)
        made = Exchange(0, task, **options)
        state = made.answers(CALL)
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        return made, state

    return asyncio.run(start())


async def fail():
    raise Refused(400, "no")


async def wait():
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("work", "options", "is_repeat"),
    [
        (wait, {}, True),
        (None, {}, True),
        (None, {"is_delivered": True}, False),
        (fail, {}, False),
    ],
    ids=["pending", "not delivered", "delivered", "failed"],
)
def test_an_equal_call_repeats_one_that_is_pending_or_was_not_delivered(work, options, is_repeat):
    _, state = exchange(work, **options)
    assert state is is_repeat


def test_a_call_that_its_client_marks_as_a_retry_repeats_a_delivered_one():
    done, _ = exchange(is_delivered=True, retry_keys=frozenset({"k"}))
    assert done.answers(replace(CALL, is_retry=True))
    assert done.answers(replace(CALL, retry_key="k"))
    assert not done.answers(replace(CALL, retry_key="other"))


def test_a_reply_is_that_of_the_task():
    done, _ = exchange()
    assert done.reply() is REPLY
    failed, _ = exchange(fail)
    with pytest.raises(Refused, match="no"):
        failed.reply()


def test_a_cancelled_call_has_no_reply_because_its_rollout_ended():
    cancelled, _ = exchange(wait)
    with pytest.raises(Refused, match="this rollout has ended") as caught:
        cancelled.reply()
    assert caught.value.status == 410
    assert not cancelled.answers(CALL)
