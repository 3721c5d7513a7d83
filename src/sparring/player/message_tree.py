"""The conversations of one rollout as a tree of messages, for doors whose clients send plain text.

Calls that begin with the same messages share nodes. Messages are equal if their roles, texts, call
ids, tools and arguments are; arguments are compared as JSON values. Reasoning is not compared,
because clients do not send it back.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import dropwhile, takewhile
from typing import Any, TypeAlias

from sparring.contracts.cases import Case
from sparring.contracts.errors import SparringError
from sparring.contracts.rollouts import Message, RequestedCall
from sparring.player.conversation import to_messages
from sparring.player.recorder import ModelCall, SampledTurn, digest

MessageKey = tuple[Any, ...]


@dataclass(slots=True, eq=False)
class TreeReply:
    """One sampled reply. `prompt` is the node of its call's last message, `before` the previous
    reply of the conversation.

    `depth` is the number of replies before it, and `branch` names its conversation. `last_use` is
    the number of the last call that contains the reply outside its own conversation, or -1.
    """

    turn: SampledTurn
    prompt: Node
    before: TreeReply | None = None
    depth: int = 0
    branch: str = ""
    content: str = ""
    last_use: int = -1


@dataclass(slots=True, eq=False)
class Node:
    """One message; its ancestors are the messages before it. `reply` is set if it was sampled."""

    message: Message
    parent: Node | None = None
    reply: TreeReply | None = None
    children: dict[MessageKey, Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call stands: the node of its last message, the messages that are new and not sampled,
    the last reply before the call, and the messages since that reply, or all if there is none."""

    node: Node
    new: tuple[Message, ...]
    before: TreeReply | None
    after: tuple[Message, ...]

    @property
    def depth(self) -> int:
        """The number of replies before the call."""
        return 0 if self.before is None else self.before.depth + 1

    def branch(self, call: ModelCall, case: Case, repeats: int) -> str:
        """Return the name of the branch that the call belongs to, which seeds it with its depth, so
        that seeds do not depend on timing. `repeats` is the number of earlier equal calls.

        The name is empty for a conversation that starts with the case's messages and never
        branches, so that its seeds equal those of the same agent on the SDK.
        """
        before, after = self.before, self.after
        if before is None:
            is_plain = [_plain(message) for message in after] == _case_messages(case)
            branch = "" if is_plain else digest(call.frame, *map(repr, after))
        else:
            is_plain = _answers(after, before.turn.calls)
            branch = before.branch if is_plain else digest(before.branch, *map(repr, after))
        return f"{branch}#{repeats}" if repeats else branch


@dataclass(frozen=True, slots=True)
class _Path:
    """The nodes of one call's messages."""

    frame: str
    messages: Sequence[Message]
    path: list[Node]


class MessageTree:
    """All conversations of one rollout."""

    def __init__(self) -> None:
        self._replies: list[TreeReply] = []
        self._unused: set[TreeReply] = set()  # replies whose text no later call contains
        self._roots: dict[str, Node] = {}
        self._latest_equal: dict[MessageKey, TreeReply] = {}
        self._latest = _Path("", (), [])

    def place(self, call: ModelCall, frame: str) -> Place:
        """Return the place of a call, and add the nodes missing on its path. Messages that are the
        same objects as in the previous call are not compared again."""
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
                if key not in self._latest_equal:
                    new.append(message)
            path.append(child)
            node = child
        self._latest = _Path(frame, messages, path)
        since = len(path)
        while since and path[since - 1].reply is None:
            since -= 1
        before = path[since - 1].reply if since else None
        return Place(node, tuple(new), before, tuple(each.message for each in path[since:]))

    def note_uses(self, call: ModelCall, place: Place, number: int) -> None:
        """Record that the call of this number contains earlier replies besides `place.before`, as a
        message or quoted in a text."""
        for message in place.after:
            if message.role == "assistant" and (key := message_key(message)) in self._latest_equal:
                self._latest_equal[key].last_use = number
        texts = [message.content for message in (*call.messages[: call.first_turn], *place.after)]
        for reply in [each for each in self._unused if each is not place.before]:
            if any(reply.content in text for text in texts):
                self.use(reply, number)

    def use(self, reply: TreeReply, number: int) -> None:
        """Record that the call of this number contains the reply outside its own conversation."""
        reply.last_use = number
        self._unused.discard(reply)

    def add(self, reply: TreeReply) -> None:
        """Add a sampled reply below the node of its call. It replaces an earlier equal reply."""
        message = Message("assistant", reply.content, calls=reply.turn.calls)
        key, node = message_key(message), reply.prompt
        known = node.children.get(key)
        if known is None:
            node.children[key] = Node(message, node, reply)
        else:
            known.reply = reply
        self._latest_equal[key] = reply
        self._replies.append(reply)
        if reply.before is not None:
            self._unused.discard(reply.before)
        if reply.content:
            self._unused.add(reply)

    def find(self, message: Message) -> SampledTurn | None:
        """Return the turn of the latest sampled reply that equals this message, or None."""
        if message.role != "assistant":
            return None
        reply = self._latest_equal.get(message_key(message))
        return reply.turn if reply is not None else None

    def discarded(self) -> set[SampledTurn]:
        """Return the turns whose replies the agent never used."""
        return {reply.turn for reply in find_discarded(self._replies)}


# The replies after a reply, or those that begin at a node.
_Families: TypeAlias = dict[TreeReply | Node, list[TreeReply]]


def find_discarded(replies: Sequence[TreeReply]) -> set[TreeReply]:
    """Return the replies that the agent never used.

    The last reply of a conversation is discarded if no later call contains it, and a later call
    repeats its prompt or branches off at an earlier turn. The replies between the branch and the
    last one are discarded with it. A call contains a reply as a message or as part of a text, so a
    summary that replaces a history counts as used.
    """
    discarded: set[TreeReply] = set()
    latest = max((reply.turn.number for reply in replies), default=-1)
    families: _Families = defaultdict(list)
    for reply in replies:
        families[reply.before or reply.prompt].append(reply)
    for leaf in sorted(replies, key=lambda reply: -reply.turn.number):
        if leaf in families or leaf.turn.number == latest or leaf.last_use >= 0:
            continue
        current: TreeReply | None = leaf
        chain: list[TreeReply] = []
        while current is not None:
            chain.append(current)
            siblings = families[current.before or current.prompt]
            if _has_later_branch(current, leaf, families):
                discarded.update(chain)
                break
            if current.before is None or any(
                each is not current and each not in discarded for each in siblings
            ):
                break
            current = current.before
    return discarded


def _has_later_branch(reply: TreeReply, leaf: TreeReply, families: _Families) -> bool:
    """Return whether a sibling of the reply, or its descendant, was sampled after the leaf."""
    siblings = families[reply.before or reply.prompt]
    pending = [each for each in siblings if each is not reply]
    while pending:
        current = pending.pop()
        if current.turn.number > leaf.turn.number:
            return True
        pending += families.get(current, ())
    return False


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


def _case_messages(case: Case) -> list[Message] | None:
    """Return the case's messages after its system messages, which belong to a call's frame."""
    given = case.input
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    try:
        messages = [_plain(message) for message in to_messages(items)]
        return list(dropwhile(lambda message: message.role == "system", messages))
    except (SparringError, KeyError):
        return None


def _plain(message: Message) -> Message:
    """Return the message without agent and thinking, and with canonical arguments."""
    calls = tuple(
        RequestedCall(call.id, call.tool, canonical(call.arguments)) for call in message.calls
    )
    return Message(message.role, message.content, calls=calls, call_id=message.call_id)


def _answers(messages: Sequence[Message], calls: Sequence[RequestedCall]) -> bool:
    """Return whether the messages continue a turn without a branch: the results of its calls in
    order or, after a turn without calls, one user message."""
    if calls:
        return [message.call_id for message in messages] == [call.id for call in calls]
    return [message.role for message in messages] == ["user"]
