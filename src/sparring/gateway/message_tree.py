"""The conversations of one session as a tree of messages.

Calls that begin with the same messages share nodes. Messages are equal if their roles, texts, call
ids, tools and arguments are; arguments are compared as JSON values. Reasoning is not compared,
because clients do not send it back.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from typing import Any

from sparring.contracts.policies import Sample
from sparring.contracts.rollouts import Message, RequestedCall, ResultBody
from sparring.gateway.calls import ModelCall
from sparring.gateway.exchanges import Exchange

MessageKey = tuple[Any, ...]


@dataclass(slots=True, eq=False)
class SampledReply:
    """One sampled turn, at `tokens[start:end]` of its conversation.

    `tokens` may extend past the turn. A branch copies the tokens before it, so the positions are
    valid in every conversation that continues the turn. `parent` is the previous turn, and `prompt`
    the node of the call's last message.

    `number` is the number of the turn in the session. `last_use` is the number of the last call
    that contains the reply outside its own conversation, or -1. `is_hidden` marks a reply that the
    chat template changes in later turns, such as one with thinking: the next turn starts a new row,
    and `follows` of that turn is this reply.
    """

    number: int
    agent: str
    branch: str
    prompt: Node
    parent: SampledReply | None
    tokens: array[int]
    start: int
    end: int
    sample: Sample
    bodies: tuple[ResultBody, ...] = ()
    depth: int = 0
    is_cut_off: bool = False
    content: str = ""
    calls: tuple[RequestedCall, ...] = ()
    opening: array[int] = field(default_factory=lambda: array("i"))
    last_use: int = -1
    is_hidden: bool = False
    follows: SampledReply | None = None
    children: list[SampledReply] = field(default_factory=list)

    @property
    def turn_ids(self) -> array[int]:
        """The tokens of the turn, including the forced tokens that open it."""
        return self.opening + self.tokens[self.start : self.end]


@dataclass(slots=True, eq=False)
class Node:
    """One message; its ancestors are the messages before it. `reply` is set if it was sampled."""

    message: Message
    parent: Node | None = None
    reply: SampledReply | None = None
    children: dict[MessageKey, Node] = field(default_factory=dict)
    exchanges: dict[Any, list[Exchange]] = field(default_factory=dict)

    def repeated(self, call: ModelCall) -> Exchange | None:
        """Return the latest exchange at this node that the call repeats, or None."""
        earlier = self.exchanges.get(call.parameters(), ())
        return next((each for each in reversed(earlier) if each.answers(call)), None)

    def upward(self) -> Iterator[Node]:
        """Yield this node and its ancestors, the root last."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent


@dataclass(frozen=True, slots=True)
class Place:
    """The node of a call's last message, and the messages that are new and not sampled."""

    node: Node
    new: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class _Path:
    """The nodes of one call's messages."""

    frame: str
    messages: tuple[Message, ...]
    path: list[Node]


class MessageTree:
    """All conversations of one session."""

    def __init__(self) -> None:
        self._roots: dict[str, Node] = {}
        self._replies: dict[MessageKey, SampledReply] = {}
        self._latest = _Path("", (), [])

    def place(self, call: ModelCall, frame: str) -> Place:
        """Return the node of the call's last message, and add the nodes missing on its path.
        Messages that are the same objects as in the previous call are not compared again."""
        node = self._roots.get(frame) or Node(Message("root", ""))
        self._roots[frame] = node
        messages = call.messages[call.first_turn :]
        path: list[Node] = []
        if frame == self._latest.frame:
            latest = zip(messages, self._latest.messages, self._latest.path, strict=False)
            path = [found for _, _, found in takewhile(lambda each: each[0] is each[1], latest)]
        node = path[-1] if path else node
        new: list[Message] = []
        for message in messages[len(path) :]:
            key = message_key(message)
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = Node(message, node)
                if key not in self._replies:
                    new.append(message)
            path.append(child)
            node = child
        self._latest = _Path(frame, messages, path)
        return Place(node, tuple(new))

    def add_reply(self, node: Node, message: Message, reply: SampledReply) -> None:
        """Add a sampled message below the node of its call. It replaces an earlier equal reply."""
        key = message_key(message)
        known = node.children.get(key)
        if known is None:
            node.children[key] = Node(message, node, reply)
        else:
            known.reply = reply
        self._replies[key] = reply

    def sampled(self, message: Message) -> SampledReply | None:
        """Return the session's latest sampled reply that equals this message, or None."""
        return self._replies.get(message_key(message)) if message.role == "assistant" else None


def message_key(message: Message) -> MessageKey:
    """Return a key that equal messages share."""
    if not message.calls:
        return (message.role, message.content, message.call_id)
    calls = tuple((call.id, call.tool, canonical(call.arguments)) for call in message.calls)
    return (message.role, message.content, message.call_id, calls)


@lru_cache(maxsize=4096)
def canonical(arguments: str) -> str:
    """Return JSON text with sorted keys and uniform spacing; other text unchanged."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
