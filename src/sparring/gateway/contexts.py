"""Builds the token prompts of calls: splices sampled turns and renders all other messages."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparring.contracts.policies import Codec
from sparring.contracts.rollouts import Message, RequestedCall, ResultBody
from sparring.gateway.message_tree import MessageTree, SampledReply


@dataclass(slots=True, eq=False)
class Context:
    """The token prompt of one turn.

    `tokens` holds the prompt, then the forced tokens in `opening`; sampled tokens are appended.
    With `base`, the `observed` tokens from `base.end` on are the messages after that sampled turn.
    `follows` is the sampled turn before this one if the template changes it, so that the prompt
    had to be rendered again.
    """

    tokens: array[int]
    base: SampledReply | None = None
    observed: int = 0
    bodies: tuple[ResultBody, ...] = ()
    opening: array[int] = field(default_factory=lambda: array("i"))
    follows: SampledReply | None = None

    def force(self, ids: array[int]) -> None:
        """Append the tokens that open the turn and are not sampled."""
        self.opening = ids
        self.tokens.extend(ids)

    def undo(self) -> None:
        """Truncate the tokens shared with `base` to its end, after sampling has failed."""
        if self.base is not None and self.tokens is self.base.tokens:
            del self.tokens[self.base.end :]


def start_context(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    codec: Codec,
    tree: MessageTree,
) -> Context:
    """Return the prompt of a call that cannot extend the tokens of a sampled turn.

    Replies that this session has sampled are spliced in. If the chat template changes any assistant
    message, the whole prompt is rendered instead.
    """
    if not codec.keeps_thinking:
        messages = [replace(message, thinking="") for message in messages]
    sampled = [reply for message in messages if (reply := tree.sampled(message)) is not None]
    if any(reply.is_hidden for reply in sampled) or not all_kept(messages, codec):
        return Context(array("i", codec.encode_prompt(messages, tools).ids))
    first = next(
        (place for place, message in enumerate(messages) if tree.sampled(message) is not None),
        len(messages),
    )
    tokens = array("i", codec.encode_prompt(messages[:first], tools).ids)
    writer = _Writer(tokens, codec, tree, lambda _: "")
    if first < len(messages):
        writer.write(messages[first:], is_turn_open=True)
    return Context(tokens)


def all_kept(messages: Sequence[Message], codec: Codec) -> bool:
    """Return whether the template leaves all assistant messages unchanged in later turns."""
    return all(codec.is_kept(each) for each in messages if each.role == "assistant")


def continue_context(
    base: SampledReply,
    messages: Sequence[Message],
    codec: Codec,
    tree: MessageTree,
    tool_of: Callable[[str], str],
) -> Context:
    """Return the prompt of a call that continues a sampled turn. The first such call extends the
    array of the turn's tokens; later ones copy it."""
    tokens = base.tokens if len(base.tokens) == base.end else base.tokens[: base.end]
    writer = _Writer(tokens, codec, tree, tool_of, base.calls)
    if base.is_cut_off:
        tokens.append(codec.end_of_turn)
    try:
        writer.write(messages)
    except BaseException:
        del tokens[base.end :]
        raise
    return Context(tokens, base, len(tokens) - base.end, tuple(writer.bodies))


class _Writer:
    """Appends the tokens of messages, up to the next generation prompt."""

    def __init__(
        self,
        tokens: array[int],
        codec: Codec,
        tree: MessageTree,
        tool_of: Callable[[str], str],
        calls: Sequence[RequestedCall] = (),
    ) -> None:
        self._tokens = tokens
        self._codec = codec
        self._tree = tree
        self._tool_of = tool_of
        self._calls = calls
        self.bodies: list[ResultBody] = []

    def write(self, messages: Sequence[Message], *, is_turn_open: bool = False) -> None:
        """Append the messages; `is_turn_open` means that a generation prompt precedes them."""
        waiting: list[Message] = []
        for message in messages:
            if message.role != "assistant":
                waiting.append(message)
                continue
            if not is_turn_open:
                self._observe(waiting)
                waiting = []
            self._repeat(message)
            is_turn_open = False
        self._observe(waiting)

    def _observe(self, messages: Sequence[Message]) -> None:
        encoded = self._codec.encode_continuation(messages, self._calls)
        start = len(self._tokens)
        self._tokens.extend(encoded.ids)
        for body in encoded.bodies:
            message = messages[body.message]
            if message.role == "tool":
                tool = self._tool_of(message.call_id)
                self.bodies.append(ResultBody(tool, start + body.start, start + body.stop))

    def _repeat(self, message: Message) -> None:
        self._calls = message.calls
        sampled = self._tree.sampled(message)
        if sampled is None:
            self._tokens.extend(self._codec.encode_reply(message))
            return
        self._tokens.extend(sampled.turn_ids)
        if sampled.is_cut_off:
            self._tokens.append(self._codec.end_of_turn)
