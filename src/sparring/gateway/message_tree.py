"""The conversations of one session as a tree of messages.

Calls that share their beginning share nodes. A call is matched message by message: by role, text,
call ids, tools and arguments as JSON values. Reasoning is left out, because clients do not send
it back.
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
    """One sampled turn and where its tokens are.

    `tokens` holds the tokens of its whole conversation; the turn is `tokens[start:end]`. A branch
    copies the tokens up to where it begins, so these positions hold in every conversation that
    continues this turn. `parent` is the turn before it, `prompt` the node of the call that it
    answers.
    `number` counts the session's calls in order; `last_use` is the number of the last call that
    contained the reply in another place. `is_hidden` marks a reply that later turns do not
    see as it was sampled, such as one with thinking: the next turn starts a new row, and its
    `follows` names this reply.
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
        """The tokens of the turn, with those that were forced at its beginning."""
        return self.opening + self.tokens[self.start : self.end]


@dataclass(slots=True, eq=False)
class Node:
    """One message; its ancestors precede it. `reply` is set if the model sampled it here."""

    message: Message
    parent: Node | None = None
    reply: SampledReply | None = None
    children: dict[MessageKey, Node] = field(default_factory=dict)
    exchanges: dict[Any, list[Exchange]] = field(default_factory=dict)

    def repeated(self, call: ModelCall) -> Exchange | None:
        """Return the exchange at this place that the call repeats."""
        earlier = self.exchanges.get(call.parameters(), ())
        return next((each for each in reversed(earlier) if each.answers(call)), None)

    def upward(self) -> Iterator[Node]:
        """Yield this node and its parents, the root last."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call is in the tree: its last message, and the messages that no call had before."""

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
        """Find the call's last message, and add the nodes that are missing on the way. Messages
        that are the same objects as in the call before it are not compared again."""
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
        """Add a sampled message below the call that it answers. Of equal replies to one call, the
        last one counts."""
        key = message_key(message)
        known = node.children.get(key)
        if known is None:
            node.children[key] = Node(message, node, reply)
        else:
            known.reply = reply
        self._replies[key] = reply

    def sampled(self, message: Message) -> SampledReply | None:
        """Return the sampled turn that this message repeats unchanged, wherever it was sampled."""
        return self._replies.get(message_key(message)) if message.role == "assistant" else None


def message_key(message: Message) -> MessageKey:
    """Return the key by which messages are compared."""
    if not message.calls:
        return (message.role, message.content, message.call_id)
    calls = tuple((call.id, call.tool, canonical(call.arguments)) for call in message.calls)
    return (message.role, message.content, message.call_id, calls)


@lru_cache(maxsize=4096)
def canonical(arguments: str) -> str:
    """Return JSON text in canonical form; other text is returned unchanged."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
