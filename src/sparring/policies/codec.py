"""Between messages and token ids, for one tokenizer and one family.

The first prompt is rendered by the family's template. Everything behind it is spliced: the
ids that were sampled stay as they are, and only what comes after them, tool results and
the next opening, is rendered and tokenised. No text is ever tokenised twice.

Text from users and tools is data. Where it spells a special token of the model, a stand-in
character takes its place while the template is rendered, and is tokenised as the plain
text: no tool result, argument or description can end a turn or open one.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sparring.contracts.errors import UnknownFamily
from sparring.contracts.policies import BodySpan, Encoded, Reply
from sparring.contracts.rollouts import Message, clean_text
from sparring.policies.families import Family

_SLOT = "SPARRINGxSLOTx{}x"
_SLOTS = re.compile(r"SPARRINGxSLOTx(\d+)x")
_STAND_IN = 0x10F000  # private use, in the last plane: no text means anything by these
_PROBE = ' a "quoted"\nprobe '
_TRANSFORMS: tuple[Callable[[str], str], ...] = (
    lambda text: text,
    lambda text: json.dumps(text, ensure_ascii=False),
    str.strip,
)


class ChatCodec:
    """Renders, tokenises and parses. `tokenizer` is a fast tokenizer of transformers."""

    def __init__(self, tokenizer: Any, family: Family) -> None:
        self.tokenizer = tokenizer
        self.family = family
        self._backend = tokenizer.backend_tokenizer
        special = [
            token.content for token in tokenizer.added_tokens_decoder.values() if token.special
        ]
        self._special = re.compile("|".join(map(re.escape, special)) or r"(?!)")
        self._stand_ins = {token: chr(_STAND_IN + number) for number, token in enumerate(special)}
        self._stood_in = re.compile(
            f"([{''.join(self._stand_ins.values())}])" if special else "(?!)"
        )
        self._plain = {self._stand_ins[token]: self._plain_ids(token) for token in special}
        self.end_of_turn = self._id(family.end_of_turn)
        self.stop_ids = frozenset(
            {self.end_of_turn, *(self._id(stop, optional=True) for stop in family.also_stops)}
            - {-1}
        )
        self._bodies = {role: self._body_transform(role) for role in ("tool", "user")}
        self._prompt = lru_cache(maxsize=512)(self._encode_prompt)
        self._scaffold = lru_cache(maxsize=64)(self._render_scaffold)

    @property
    def digest(self) -> str:
        """What the ids depend on besides the text: template and vocabulary."""
        text = self.family.template + self._backend.to_str()
        return hashlib.sha256(text.encode()).hexdigest()

    # ------------------------------------------------------------------ encoding

    def encode_prompt(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> Encoded:
        """The whole conversation so far, up to the model's next word."""
        return self._prompt(tuple(messages), json.dumps(list(tools)))

    def encode_continuation(self, messages: Sequence[Message]) -> Encoded:
        """What follows the model's own end of turn: these messages, and its next opening."""
        pieces = self._scaffold(tuple(message.role for message in messages))
        text, places = pieces[0], []
        for message, piece in zip(messages, pieces[1:], strict=True):
            body = self._body(message)
            places.append((len(text), len(text) + len(body)))
            text += body + piece
        ids, offsets = self._tokenise(text)
        return Encoded(ids, _body_spans(offsets, places))

    def encode_reply(self, message: Message) -> array[int]:
        """A turn of the model's, as it would have written it, its end included."""
        asked = [{"role": "user", "content": "-"}]
        before = self._render(asked, None)
        after = self._render([*asked, self._chat_message(message)], None)
        said, ended, _ = after[len(before) :].partition(self.family.end_of_turn)
        if not after.startswith(before) or not ended:
            raise UnknownFamily(
                f"the template of {self.family.name} does not render a turn behind its own opening "
                "of one; a training template must"
            )
        return self._tokenise(said + ended)[0]

    def _encode_prompt(self, messages: tuple[Message, ...], tools: str) -> Encoded:
        schemas = self._disarmed_within(json.loads(tools))
        text = self._render([self._chat_message(message) for message in messages], schemas)
        return Encoded(self._tokenise(text)[0])

    def _chat_message(self, message: Message) -> dict[str, Any]:
        """A message as chat templates expect it, with nothing special in its text."""
        chat: dict[str, Any] = {"role": message.role, "content": self._disarmed(message.content)}
        if message.thinking:
            chat["reasoning_content"] = self._disarmed(message.thinking)
        if message.calls:
            chat["tool_calls"] = [
                {
                    "type": "function",
                    "function": {
                        "name": self._disarmed(call.tool),
                        "arguments": self._arguments(call.arguments),
                    },
                }
                for call in message.calls
            ]
        return chat

    def _disarmed(self, text: str) -> str:
        """The text with each special token's spelling replaced by a stand-in character."""
        return self._special.sub(lambda found: self._stand_ins[found.group()], clean_text(text))

    def _arguments(self, written: str) -> Any:
        """The object that a call's arguments spell, or their text where they spell none. Disarmed
        once JSON is decoded: an escape may spell a special token as well."""
        try:
            return self._disarmed_within(json.loads(written))
        except (ValueError, RecursionError):
            return self._disarmed(written)

    def _disarmed_within(self, value: Any) -> Any:
        """The same value, with every text in it disarmed, names of fields included."""
        if isinstance(value, str):
            return self._disarmed(value)
        if isinstance(value, list):
            return [self._disarmed_within(each) for each in value]
        if isinstance(value, dict):
            return {
                self._disarmed(name): self._disarmed_within(each) for name, each in value.items()
            }
        return value

    # ------------------------------------------------------------------ decoding

    def decode(self, ids: array[int]) -> str:
        return str(
            self.tokenizer.decode(
                ids.tolist(), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def parse(self, ids: array[int]) -> Reply:
        """What the model said, in words: thinking, content, calls."""
        kept = len(ids)
        while kept and ids[kept - 1] in self.stop_ids:
            kept -= 1
        text, thinking = self.decode(ids[:kept]), ""
        if self.family.thinking:
            text, thinking = split_thinking(text, *self.family.thinking)
        reply = self.family.tool_calls.parse(text)
        return Reply(reply.content, thinking, reply.calls, reply.malformed)

    # ------------------------------------------------------------------ rendering

    def _render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                messages,
                tools=tools or None,
                chat_template=self.family.template,
                tokenize=False,
                add_generation_prompt=True,
            )
        )

    def _render_scaffold(self, roles: tuple[str, ...]) -> tuple[str, ...]:
        """The template's text around the bodies of messages that follow the model's turn.

        Found by rendering marked slots behind a marked turn, so that it also holds for a
        template that changes earlier turns when later ones arrive.
        """
        turn = len(roles)
        messages = [
            {"role": "user", "content": "-"},
            {"role": "assistant", "content": _SLOT.format(turn)},
        ]
        messages += [
            {"role": role, "content": _SLOT.format(number)} for number, role in enumerate(roles)
        ]
        _, found, after = self._render(messages, None).partition(_SLOT.format(turn))
        if not found:
            raise UnknownFamily(
                f"the template of {self.family.name} does not show what the assistant said; "
                "a training template must render its content as it is"
            )
        pieces = _SLOTS.split(after.removeprefix(self.family.end_of_turn))
        if [int(number) for number in pieces[1::2]] != list(range(len(roles))):
            raise UnknownFamily(
                f"the template of {self.family.name} leaves out or reorders messages of the roles "
                f"{', '.join(roles)}; a training template must render each once"
            )
        scaffold = (
            [_unquoted(piece) for piece in pieces[0::2]]
            if self._is_quoting(pieces)
            else pieces[0::2]
        )
        return tuple(scaffold)

    def _is_quoting(self, pieces: list[str]) -> bool:
        return len(pieces) > 1 and pieces[0].endswith('"') and pieces[2].startswith('"')

    def _body_transform(self, role: str) -> Callable[[str], str]:
        """What the template does to a body: nothing, JSON quotes, or trimming its ends."""
        frame = [{"role": "user", "content": "-"}, {"role": "assistant", "content": "-"}]
        slot = self._render([*frame, {"role": role, "content": _SLOT.format(0)}], None)
        before, _, after = slot.partition(_SLOT.format(0))
        rendered = self._render([*frame, {"role": role, "content": _PROBE}], None)
        if before.endswith('"') and after.startswith('"'):
            before, after = before[:-1], after[1:]
        body = rendered[len(before) : len(rendered) - len(after)]
        for transform in _TRANSFORMS:
            if transform(_PROBE) == body:
                return transform
        raise UnknownFamily(
            f"the template of {self.family.name} changes the text of {role} messages; "
            "a training template must render it as it is, trimmed, or as a JSON string"
        )

    def _body(self, message: Message) -> str:
        transform = self._bodies["tool" if message.role == "tool" else "user"]
        return transform(self._disarmed(message.content))

    # ------------------------------------------------------------------ tokenising

    def _tokenise(self, text: str) -> tuple[array[int], list[tuple[int, int]]]:
        """Ids with the characters that each stands for; a stand-in becomes plain text again."""
        if not self._stood_in.search(text):
            encoding = self._backend.encode(text, add_special_tokens=False)
            return array("i", encoding.ids), encoding.offsets
        ids: array[int] = array("i")
        offsets: list[tuple[int, int]] = []
        start = 0
        for part in self._stood_in.split(text):
            if part in self._plain:
                ids.extend(self._plain[part])
                offsets += [(start, start + 1)] * len(self._plain[part])
            else:
                encoding = self._backend.encode(part, add_special_tokens=False)
                ids.extend(encoding.ids)
                offsets += [(start + first, start + last) for first, last in encoding.offsets]
            start += len(part)
        return ids, offsets

    def _plain_ids(self, text: str) -> array[int]:
        """Ids of a text in which nothing is special."""
        self._backend.encode_special_tokens = True
        try:
            return array("i", self._backend.encode(text, add_special_tokens=False).ids)
        finally:
            self._backend.encode_special_tokens = False

    def _id(self, token: str, *, optional: bool = False) -> int:
        found = self._backend.token_to_id(token)
        if found is None:
            if optional:
                return -1
            raise UnknownFamily(
                f"this tokenizer has no {token}, which ends a turn in the family "
                f"{self.family.name}; pass the right `family=`"
            )
        return int(found)


def split_thinking(text: str, opening: str, closing: str) -> tuple[str, str]:
    """The text without its thinking, and the thinking."""
    before, closed, after = text.partition(closing)
    if closed:
        return after.strip(), before.replace(opening, "", 1).strip()
    head, opened, thought = text.partition(opening)
    return (head.strip(), thought.strip()) if opened else (text, "")


def _body_spans(
    offsets: list[tuple[int, int]], places: list[tuple[int, int]]
) -> tuple[BodySpan, ...]:
    """Tokens that lie wholly inside each place; one that straddles the edge is scaffolding."""
    spans = []
    token = 0
    for number, (start, stop) in enumerate(places):
        while token < len(offsets) and offsets[token][0] < start:
            token += 1
        first = token
        while token < len(offsets) and offsets[token][1] <= stop:
            token += 1
        spans.append(BodySpan(number, first, token))
    return tuple(spans)


def _unquoted(piece: str) -> str:
    return piece.removeprefix('"').removesuffix('"')
