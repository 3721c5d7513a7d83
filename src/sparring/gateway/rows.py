"""Builds the token rows of a session. Exactly one row marks each sampled token as sampled."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from sparring.contracts.rollouts import ResultBody, RowStart, Span, TokenKind, TokenRow
from sparring.gateway.calls import MAIN
from sparring.gateway.message_tree import Node, SampledReply

# The replies after a reply, or those that begin at a node.
_Families: TypeAlias = dict[SampledReply | Node, list[SampledReply]]


def rows_of(replies: Sequence[SampledReply]) -> list[TokenRow]:
    """Return the rows of all replies, discarded rows last. A row follows a conversation to its end;
    a branch starts another row, whose prompt holds the tokens before it."""
    discarded = find_discarded(replies)
    chains = [
        [*chain]
        for is_discarded in (False, True)
        for chain in _chains(
            [reply for reply in replies if (reply in discarded) is is_discarded], discarded
        )
    ]
    places = {reply: place for place, chain in enumerate(chains) for reply in chain}
    return [_row(chain, places, discarded) for chain in chains]


def find_discarded(replies: Sequence[SampledReply]) -> set[SampledReply]:
    """Return the replies that the agent never used.

    The last reply of a conversation is discarded if no later call contains it, and a later call
    repeats its prompt or branches off at an earlier turn. The replies between the branch and the
    last one are discarded with it. A call contains a reply as a message or as part of a text, so a
    summary that replaces a history counts as used.
    """
    discarded: set[SampledReply] = set()
    latest = max((reply.number for reply in replies), default=-1)
    families: _Families = defaultdict(list)
    for reply in replies:
        families[_before(reply) or reply.prompt].append(reply)
    for leaf in sorted(replies, key=lambda reply: -reply.number):
        if leaf in families or leaf.number == latest or leaf.last_use >= 0:
            continue
        current: SampledReply | None = leaf
        chain: list[SampledReply] = []
        while current is not None:
            chain.append(current)
            if _has_later_branch(current, leaf, families):
                discarded.update(chain)
                break
            before = _before(current)
            if before is None or any(
                each is not current and each not in discarded for each in families[before]
            ):
                break
            current = before
    return discarded


def _before(reply: SampledReply) -> SampledReply | None:
    """Return the previous reply of the conversation, in the same row or in another."""
    return reply.parent or reply.follows


def _has_later_branch(reply: SampledReply, leaf: SampledReply, families: _Families) -> bool:
    """Return whether a sibling of the reply, or its descendant, was sampled after the leaf."""
    return any(
        each.number > leaf.number
        for other in families[_before(reply) or reply.prompt]
        if other is not reply
        for each in _with_descendants(other, families)
    )


def _with_descendants(reply: SampledReply, families: _Families) -> Iterator[SampledReply]:
    pending = [reply]
    while pending:
        current = pending.pop()
        yield current
        pending += families.get(current, ())


def _chains(
    replies: Sequence[SampledReply], discarded: set[SampledReply]
) -> Iterable[list[SampledReply]]:
    """Yield chains of replies. A reply's first child with its label continues its chain; others
    start new ones."""
    taken: set[SampledReply] = set()
    for first in sorted(replies, key=lambda reply: reply.number):
        if first in taken:
            continue
        chain = [first]
        while True:
            continuations = [
                child
                for child in chain[-1].children
                if child not in taken
                and child.agent == first.agent
                and (child in discarded) is (first in discarded)
            ]
            if not continuations:
                break
            chain.append(min(continuations, key=lambda child: child.number))
        taken.update(chain)
        yield chain


def _row(
    chain: Sequence[SampledReply],
    places: dict[SampledReply, int],
    discarded: set[SampledReply],
) -> TokenRow:
    first, last = chain[0], chain[-1]
    spans = [Span(TokenKind.PROMPT, first.start)]
    logprobs: array[float] = array("f")
    bodies: list[ResultBody] = []
    versions: list[tuple[int, int]] = []
    for reply in chain:
        if reply is not first:
            spans.append(Span(TokenKind.OBSERVED, reply.start - reply.parent.end))  # type: ignore[union-attr]
            bodies += reply.bodies
        spans.append(Span(TokenKind.SAMPLED, reply.end - reply.start))
        logprobs.extend(reply.sample.logprobs)
        if reply.sample.version is not None:
            versions.append((reply.sample.version, reply.end - reply.start))
    before = _before(first)
    parent = places.get(before) if before is not None else None
    return TokenRow(
        first.agent,
        last.tokens[: last.end],
        logprobs,
        tuple(spans),
        tuple(bodies),
        _start(first, parent),
        parent,
        tuple(versions),
        is_discarded=first in discarded,
    )


def _start(first: SampledReply, parent: int | None) -> RowStart:
    if parent is not None:
        return RowStart.HISTORY
    if first.number == 0:
        return RowStart.FIRST
    return RowStart.FRAME if first.agent == MAIN else RowStart.NESTED
