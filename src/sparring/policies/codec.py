"""Converts between messages and token ids, for one tokenizer and one family.

The family's template renders the first prompt. Later tokens are appended to it: sampled ids are
kept unchanged, and only the text after them (tool results, user messages and the next generation
prompt) is rendered and tokenised.

Text from users and tools is data. If it spells a special token of the model, a stand-in character
replaces the spelling while the template is rendered, and the spelling is then tokenised as plain
text. No tool result, argument or description can end or open a turn.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from typing import Any

from sparring.contracts.chat import ChatMessage, ToolSchema, chat_call
from sparring.contracts.errors import UnknownFamily
from sparring.contracts.policies import BodySpan, Encoded, ParsedCall, Reply
from sparring.contracts.rollouts import Message, RequestedCall, clean_text
from sparring.policies.continuations import QUESTION, Continuations
from sparring.policies.families import Family

_SLOT = "SPARRINGxSLOTx"
_FIRST_STAND_IN = 0x10F000  # in the last private-use plane, which ordinary text does not use
_CHARACTERS_PER_TOKEN = 16
_CACHED_TEXT = 2048  # characters of a continuation whose tokens are kept
_UNKNOWN_TOOL = "unknown"
_begin, _end = itemgetter(0), itemgetter(1)


class ChatCodec:
    """Renders, tokenises and parses chats. `tokenizer` is a fast tokenizer of transformers."""

    def __init__(self, tokenizer: Any, family: Family) -> None:
        self.tokenizer = tokenizer
        self.family = family
        self._backend = tokenizer.backend_tokenizer
        special = [
            token.content for token in tokenizer.added_tokens_decoder.values() if token.special
        ]
        self._special_pattern = re.compile("|".join(map(re.escape, special)) or r"(?!)")
        self._stand_ins = {
            token: chr(_FIRST_STAND_IN + number) for number, token in enumerate(special)
        }
        self._stand_in_pattern = re.compile(
            f"([{''.join(self._stand_ins.values())}])" if special else "(?!)"
        )
        self._ids_of_stand_in = {
            self._stand_ins[token]: self._plain_ids(token) for token in special
        }
        self._special_ids = frozenset(self._id(token) for token in special)
        self.end_of_turn = self._id(family.end_of_turn)
        self._end_of_calls = self._id(family.end_of_calls) if family.end_of_calls else None
        self.stop_ids = frozenset(
            {
                self.end_of_turn,
                *(self._id(stop, optional=True) for stop in family.also_stops),
                *([] if self._end_of_calls is None else [self._end_of_calls]),
            }
            - {-1}
        )
        self._continuations = Continuations(family, lambda messages: self._render(messages, None))
        self._cached_prompt = lru_cache(maxsize=512)(self._encode_prompt)
        self._cached_tokens = lru_cache(maxsize=512)(self._tokenise)

    @property
    def digest(self) -> str:
        """The SHA-256 of the template and the tokenizer, which determine the ids of a
        conversation."""
        text = self.family.template + self._backend.to_str()
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def keeps_thinking(self) -> bool:
        """Whether later prompts contain the thinking of earlier turns."""
        return self.family.keeps_thinking

    def is_kept(self, turn: Reply | Message, ids: Sequence[int] = ()) -> bool:
        """Return whether later prompts contain this turn exactly as sampled. `ids` are its tokens,
        if known: a turn with calls must end with the token that the template writes after calls."""
        if turn.thinking and not self.family.keeps_thinking:
            return False
        if not turn.calls:
            return not self.family.rewrites_answers
        return not ids or self._end_of_calls is None or ids[-1] == self._end_of_calls

    # ------------------------------------------------------------------ encoding

    def encode_prompt(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Encoded:
        """Encode the whole conversation so far, including the next generation prompt."""
        if tools and not self.family.has_tools:
            raise UnknownFamily(
                f"models of the family {self.family.name} cannot use tools in Sparring; use a "
                "model that supports tools (see docs/families.md), or an agent without tools"
            )
        prompt = self._cached_prompt(tuple(messages), json.dumps(list(tools)))
        return Encoded(prompt.ids[:], prompt.bodies)

    def encode_continuation(
        self, messages: Sequence[Message], calls: Sequence[RequestedCall] = ()
    ) -> Encoded:
        """Encode the text after a sampled turn: these messages and the next generation prompt.
        `calls` are the calls of the turn; some families write the tool's name with each result."""
        roles = tuple(message.role for message in messages)
        tools = _tools_of(messages, calls)
        text, ranges = "", []
        for piece in self._continuations.pieces_after(roles, follows_calls=bool(calls)):
            if isinstance(piece, str):
                text += piece
                continue
            message = messages[piece.message]
            if piece.is_name:
                text += self._escape(tools[piece.message])
                continue
            body = self._continuations.body(message.role, self._escape(message.content))
            ranges.append((len(text), len(text) + len(body)))
            text += body
        # The rollouts of a group often get the same results.
        tokenise = self._cached_tokens if len(text) <= _CACHED_TEXT else self._tokenise
        ids, offsets = tokenise(text)
        return Encoded(ids[:], _body_spans(offsets, ranges))

    def tokens_in(self, text: str) -> int:
        """Count the tokens of a text."""
        return len(self._tokenise(self._escape(text))[0])

    def beginning(self, text: str, most: int) -> str:
        """Return a beginning of the text with at most `most` tokens. At most 16 characters per
        allowed token are tokenised."""
        if len(text.encode()) <= most:
            return text
        head = text[: _CHARACTERS_PER_TOKEN * max(most, 1)]
        ids, offsets = self._tokenise(self._escape(head))
        if len(ids) <= most and head == text:
            return text
        return head[: self._original_place(head, offsets[most][0])] if len(ids) > most else head

    def _original_place(self, text: str, place: int) -> int:
        """Return the position in the text that has this position after `_escape`."""
        for found in self._special_pattern.finditer(text):
            if found.start() >= place:
                break
            place += len(found.group()) - 1
        return place

    def encode_call_opening(self, tool: str | None) -> array[int]:
        """Encode the beginning of a call, which the model then continues: up to the arguments of
        `tool`, or up to a tool's name."""
        opening = getattr(self.family.tool_calls, "opening", None)
        if opening is None:
            raise UnknownFamily(
                f"the tool calls of {self.family.name} have no `opening`, which tool_choice needs; "
                "docs/families.md shows how to write one"
            )
        return self._tokenise(opening(None if tool is None else self._escape(tool)))[0]

    def encode_reply(self, message: Message) -> array[int]:
        """Encode a turn in the model's own format, including the token that ends it."""
        before, after = self._render([QUESTION], None), self._render_turn(message)
        last = (self.family.end_of_calls if message.calls else None) or self.family.end_of_turn
        rest = after[len(before) :]
        turn, end, _ = rest.rpartition(last) if message.calls else rest.partition(last)
        if not after.startswith(before) or not end:
            raise UnknownFamily(
                f"the template of {self.family.name} does not render a turn after its own "
                "generation prompt; a training template must"
            )
        return self._tokenise(turn + end)[0]

    def _render_turn(self, message: Message) -> str:
        """Render a question followed by this turn. If the generation prompt opens a thinking block,
        the turn closes it, even if the template omits the thinking of earlier turns."""
        chat = self._chat_message(message)
        then_asks = not self.family.rewrites_answers
        before = self._render([QUESTION], None)
        after = self._render([QUESTION, chat], None, then_asks=then_asks)
        if after.startswith(before) or not self.family.thinking:
            return after
        opening, closing = self.family.thinking
        slot = _SLOT
        thought = self._render([QUESTION, {**chat, "reasoning_content": slot}], None)
        if slot in thought and not message.thinking:
            return re.sub(slot + r"\n?", "", thought)
        head = before.rstrip().removesuffix(opening)
        thinking = f"{self._escape(message.thinking)}\n" if message.thinking else ""
        closed = f"{before}{thinking}{closing}\n\n{after[len(head) :]}"
        return closed if head != before.rstrip() and after.startswith(head) else after

    def _encode_prompt(self, messages: tuple[Message, ...], tools: str) -> Encoded:
        schemas = self._escape_within(json.loads(tools))
        text = self._render([self._chat_message(message) for message in messages], schemas)
        return Encoded(self._tokenise(text)[0])

    def _chat_message(self, message: Message) -> ChatMessage:
        """Return the message with its special tokens escaped."""
        chat = ChatMessage(role=message.role, content=self._escape(message.content))
        if message.thinking:
            chat["reasoning_content"] = self._escape(message.thinking)
        if message.call_id and self.family.names_results:
            chat["tool_call_id"] = self._escape(message.call_id)
        if message.calls:
            chat["tool_calls"] = [
                chat_call(
                    self._escape(call.tool),
                    self._arguments(call.arguments),
                    self._escape(call.id) if self.family.names_results else None,
                )
                for call in message.calls
            ]
        return chat

    def _escape(self, text: str) -> str:
        """Replace the spelling of each special token by its stand-in character."""
        return self._special_pattern.sub(
            lambda found: self._stand_ins[found.group()], clean_text(text)
        )

    def _arguments(self, text: str) -> Any:
        """Decode a call's arguments; return the text if it is not JSON. Special tokens are escaped
        after decoding, because JSON escapes can spell one."""
        try:
            return self._escape_within(json.loads(text))
        except (ValueError, RecursionError):
            return self._escape(text)

    def _escape_within(self, value: Any) -> Any:
        """Escape every string in a JSON value, including the names of fields."""
        return _with_strings(value, self._escape)

    # ------------------------------------------------------------------ decoding

    def decode(self, ids: array[int]) -> str:
        """Return the text of token ids, including special tokens."""
        return str(self._backend.decode(ids.tolist(), skip_special_tokens=False))

    def parse(self, ids: array[int], tools: Sequence[ToolSchema] = ()) -> Reply:
        """Parse a sampled turn into thinking, content and calls. `tools` are the schemas in the
        prompt, which give the types of arguments in formats that do not write types."""
        length = len(ids)
        while length and ids[length - 1] in self.stop_ids:
            length -= 1
        if self.family.reads_tokens:
            reply = self.family.tool_calls.parse(self._decode_escaped(ids[:length]), tools)
            return self._unescaped(reply)
        text, thinking = self.decode(ids[:length]), ""
        if self.family.thinking:
            text, thinking = split_thinking(text, *self.family.thinking)
        reply = self.family.tool_calls.parse(text, tools)
        return replace(reply, thinking=thinking) if thinking else reply

    def _decode_escaped(self, ids: array[int]) -> str:
        """Return the text of token ids. Plain tokens that spell a special token become its
        stand-in."""
        text, start = "", 0
        for place, token in enumerate(ids):
            if token in self._special_ids:
                text += self._escape(self.decode(ids[start:place])) + self.decode(
                    ids[place : place + 1]
                )
                start = place + 1
        return text + self._escape(self.decode(ids[start:]))

    def _unescaped(self, reply: Reply) -> Reply:
        """Replace stand-ins in a reply by the spelling of their special tokens."""
        spelled = {stand_in: token for token, stand_in in self._stand_ins.items()}

        def plain(text: str) -> str:
            return self._stand_in_pattern.sub(lambda found: spelled[found.group()], text)

        def plain_json(text: str) -> str:
            if not self._stand_in_pattern.search(text):
                return text
            return json.dumps(_with_strings(json.loads(text), plain), ensure_ascii=False)

        calls = [ParsedCall(plain(each.tool), plain_json(each.arguments)) for each in reply.calls]
        return Reply(
            plain(reply.content),
            plain(reply.thinking),
            tuple(calls),
            malformed=plain(reply.malformed),
        )

    # ------------------------------------------------------------------ rendering

    def _render(
        self,
        messages: list[ChatMessage],
        tools: list[ToolSchema] | None,
        *,
        then_asks: bool = True,
    ) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                messages,
                tools=tools or None,
                chat_template=self.family.template,
                tokenize=False,
                add_generation_prompt=then_asks,
            )
        )

    # ------------------------------------------------------------------ tokenising

    def _tokenise(self, text: str) -> tuple[array[int], list[tuple[int, int]]]:
        """Return the token ids, and the character range of each in `text`. A stand-in becomes the
        plain tokens of its spelling."""
        if not self._stand_in_pattern.search(text):
            encoding = self._backend.encode(text, add_special_tokens=False)
            return array("i", encoding.ids), encoding.offsets
        ids: array[int] = array("i")
        offsets: list[tuple[int, int]] = []
        start = 0
        for part in self._stand_in_pattern.split(text):
            if part in self._ids_of_stand_in:
                ids.extend(self._ids_of_stand_in[part])
                offsets += [(start, start + 1)] * len(self._ids_of_stand_in[part])
            else:
                encoding = self._backend.encode(part, add_special_tokens=False)
                ids.extend(encoding.ids)
                offsets += [(start + first, start + last) for first, last in encoding.offsets]
            start += len(part)
        return ids, offsets

    def _plain_ids(self, text: str) -> array[int]:
        """Tokenise a text without recognising special tokens."""
        self._backend.encode_special_tokens = True
        try:
            return array("i", self._backend.encode(text, add_special_tokens=False).ids)
        finally:
            self._backend.encode_special_tokens = False

    def _id(self, token: str, *, optional: bool = False) -> int:
        token_id = self._backend.token_to_id(token)
        if token_id is None:
            if optional:
                return -1
            raise UnknownFamily(
                f"this tokenizer has no token {token}, which ends a turn in the family "
                f"{self.family.name}; pass the right `family=`"
            )
        return int(token_id)


def split_thinking(text: str, opening: str, closing: str) -> tuple[str, str]:
    """Return the text without its thinking, and the thinking. A missing opening tag counts as
    written by the prompt; unclosed thinking extends to the end."""
    before, closed, after = text.partition(closing)
    if closed:
        return after.strip(), before.replace(opening, "", 1).strip()
    head, opened, thought = text.partition(opening)
    return (head.strip(), thought.strip()) if opened else (text, "")


def _with_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with every string changed, including the names of fields."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_with_strings(item, change) for item in value]
    if isinstance(value, dict):
        return {change(name): _with_strings(item, change) for name, item in value.items()}
    return value


def _tools_of(messages: Sequence[Message], calls: Sequence[RequestedCall]) -> list[str]:
    """Return a tool name for each message: that of the call with the message's id, else that of the
    call at the same position among the tool messages, as in templates."""
    by_id = {call.id: call.tool for call in calls if call.id}
    in_order = iter(calls)
    tools = []
    for message in messages:
        following = next(in_order, None) if message.role == "tool" else None
        other = following.tool if following else _UNKNOWN_TOOL
        tools.append(by_id.get(message.call_id, other))
    return tools


def _body_spans(
    offsets: list[tuple[int, int]], ranges: list[tuple[int, int]]
) -> tuple[BodySpan, ...]:
    """Return the tokens that lie completely inside each character range. A token that crosses the
    edge of a range counts as part of the template."""
    spans = []
    last = 0
    for number, (start, stop) in enumerate(ranges):
        first = bisect_left(offsets, start, last, key=_begin)
        last = bisect_right(offsets, stop, first, key=_end)
        spans.append(BodySpan(number, first, last))
    return tuple(spans)
