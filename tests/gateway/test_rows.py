"""Rows of sampled replies: each token in exactly one, over random trees of conversations."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.policies import Finish, Sample
from sparring.contracts.rollouts import Message, ResultBody, RowStart, TokenKind
from sparring.gateway.calls import MAIN, SUB_AGENT
from sparring.gateway.message_tree import Node, SampledReply
from sparring.gateway.rows import find_discarded, rows_of


class Session:
    """Makes replies with tokens unlike all others, as a capture does."""

    def __init__(self):
        self.replies = []
        self._token = 0

    def tokens(self, number):
        self._token += number
        return array("i", range(self._token - number, self._token))

    def reply(self, parent=None, *, prompt=None, agent=MAIN, sampled=2, observed=3, **fields):
        """A reply to a new prompt, or after a parent."""
        before = self.tokens(4) if parent is None else parent.tokens[: parent.end]
        extra = array("i") if parent is None else self.tokens(observed)
        ids = self.tokens(sampled)
        number = len(self.replies)
        sample = Sample(ids, array("f", [-float(number + 1)] * sampled), Finish.STOP, number % 2)
        start = len(before) + len(extra)
        made = SampledReply(
            number=number,
            agent=agent,
            branch="",
            prompt=prompt or Node(Message("user", str(number))),
            parent=parent,
            tokens=before + extra + ids,
            start=start,
            end=start + sampled,
            sample=sample,
            bodies=(ResultBody("add", len(before), start),) if parent is not None else (),
            **fields,
        )
        if parent is not None:
            parent.children.append(made)
        self.replies.append(made)
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
    st.tuples(st.integers(-1, 20), st.integers(0, 2), st.booleans(), st.integers(1, 4)), max_size=14
)


def grown(steps):
    """A session of random branches: each step continues a reply, or begins anew; some share the
    place of their call, some replies came back elsewhere."""
    session, places = Session(), [Node(Message("user", str(number))) for number in range(3)]
    for parent, place, is_used, sampled in steps:
        earlier = session.replies
        before = earlier[parent % len(earlier)] if earlier and parent >= 0 else None
        made = session.reply(before, prompt=places[place], sampled=sampled)
        made.last_use = len(earlier) if is_used else -1
    return session


@given(steps)
def test_each_sampled_token_is_in_one_row_with_its_log_probability(steps):
    session = grown(steps)
    rows = rows_of(session.replies)
    found = [token for row in rows for token in sampled_ids(row)]
    expected = [token for reply in session.replies for token in reply.sample.ids]
    assert sorted(found) == sorted(expected)
    by_token = {
        token: logprob
        for reply in session.replies
        for token, logprob in zip(reply.sample.ids, reply.sample.logprobs, strict=True)
    }
    for row in rows:
        assert [by_token[token] for token in sampled_ids(row)] == list(row.logprobs)
        assert sum(length for _, length in row.versions) == len(row.logprobs)


@given(steps)
def test_a_row_is_a_prefix_closed_conversation(steps):
    """What stands before a sampled token in its row is what it was sampled from."""
    session = grown(steps)
    starts = {reply.sample.ids[0]: reply for reply in session.replies}
    for row in rows_of(session.replies):
        place = 0
        for span in row.spans:
            if span.kind is TokenKind.SAMPLED:
                reply = starts[row.ids[place]]
                assert row.ids[:place] == reply.tokens[: reply.start]
            place += span.length


@given(steps)
def test_rows_name_the_row_that_they_branch_from(steps):
    session = grown(steps)
    rows = rows_of(session.replies)
    owner = {token: place for place, row in enumerate(rows) for token in sampled_ids(row)}
    first = {reply.sample.ids[0]: reply for reply in session.replies}
    for row in rows:
        reply = first[sampled_ids(row)[0]]
        before = reply.parent
        assert row.parent == (None if before is None else owner[before.sample.ids[0]])


@given(steps)
def test_discarded_replies_were_never_used_and_have_rows_of_their_own(steps):
    session = grown(steps)
    discarded = find_discarded(session.replies)
    for reply in discarded:
        assert reply is not session.replies[-1]
        assert reply.children or reply.last_use < 0
        assert all(child in discarded for child in reply.children)
    tokens = {token for reply in discarded for token in reply.sample.ids}
    for row in rows_of(session.replies):
        assert {token in tokens for token in sampled_ids(row)} == {row.is_discarded}


def test_a_conversation_is_one_row_with_the_results_of_its_tools():
    session = Session()
    first = session.reply()
    session.reply(first)
    (row,) = rows_of(session.replies)
    assert [span.kind for span in row.spans] == ["prompt", "sampled", "observed", "sampled"]
    assert (row.start, row.parent, row.agent) == (RowStart.FIRST, None, MAIN)
    assert row.bodies == (ResultBody("add", 6, 9),)


def test_an_answer_that_was_asked_for_again_is_discarded():
    session, place = Session(), Node(Message("user", "x"))
    first, second = session.reply(prompt=place), session.reply(prompt=place)
    assert find_discarded(session.replies) == {first}
    second.last_use = 3
    assert [row.is_discarded for row in rows_of(session.replies)] == [False, True]
    first.last_use = 3  # a part of another message
    assert find_discarded(session.replies) == set()


def test_a_branch_that_was_left_is_discarded_as_a_whole():
    session = Session()
    base = session.reply()
    left = session.reply(base)
    longer = session.reply(left)
    session.reply(base)
    assert find_discarded(session.replies) == {left, longer}


def test_rows_of_other_agents_and_instructions_begin_by_themselves():
    session = Session()
    session.reply()
    session.reply(agent=SUB_AGENT)
    session.reply()
    starts = [row.start for row in rows_of(session.replies)]
    assert starts == [RowStart.FIRST, RowStart.NESTED, RowStart.FRAME]


def test_a_row_after_hidden_thinking_follows_the_row_before_it():
    session = Session()
    first = session.reply(is_hidden=True)
    session.reply(follows=first)
    rows = rows_of(session.replies)
    assert (rows[1].start, rows[1].parent) == (RowStart.HISTORY, 0)


def test_a_reply_with_another_label_has_a_row_of_its_own():
    session = Session()
    first = session.reply()
    title = session.reply(first, agent="auxiliary")
    session.reply(title)
    rows = rows_of(session.replies)
    assert [row.agent for row in rows] == [MAIN, "auxiliary", MAIN]
    assert [sampled_ids(row) for row in rows] == [
        each.turn_ids.tolist() for each in session.replies
    ]


def test_a_reply_after_hidden_thinking_that_was_asked_for_again_is_discarded():
    session = Session()
    first = session.reply(is_hidden=True, last_use=2)
    left = session.reply(follows=first, is_hidden=True)
    session.reply(follows=first)
    assert find_discarded(session.replies) == {left}
