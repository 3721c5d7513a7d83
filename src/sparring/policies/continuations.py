"""Finds the text that a template renders after a sampled turn: the next messages and the
generation prompt.

Each sequence of roles is rendered once, with markers for the turn and the messages after it. Only
the text after the turn's marker is used, so that a template may change earlier turns when later
messages arrive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sparring.contracts.chat import ChatMessage, chat_call
from sparring.contracts.errors import UnknownFamily
from sparring.policies.families import Family

QUESTION: ChatMessage = {"role": "user", "content": "-"}
_BODY, _NAME = "SPARRINGxBODYx{}x", "SPARRINGxNAMEx{}x"
_SLOTS = re.compile(r"SPARRINGx(BODY|NAME)x(\d+)x")
_PROBE = ' a "quoted"\nprobe '


def _as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_TRANSFORMS: tuple[Callable[[str], str], ...] = (lambda text: text, _as_json, str.strip)


@dataclass(frozen=True, slots=True)
class Slot:
    """A placeholder for a message's text, or for the name of the tool that returned it."""

    message: int
    is_name: bool = False


class Continuations:
    """Renders a family's template with markers to find its text after a turn of the model.

    Raises UnknownFamily if the template cannot be used for training.
    """

    def __init__(self, family: Family, render: Callable[[list[ChatMessage]], str]) -> None:
        self._family = family
        self._render = render
        roles = ("tool", "user") if family.has_tools else ("user",)
        self._transforms = {role: self._detect_transform(role) for role in roles}
        self.pieces_after = lru_cache(maxsize=64)(self._pieces_after)

    def body(self, role: str, text: str) -> str:
        """Return a message's text as the template renders it: unchanged, trimmed, or as JSON."""
        return self._transform_of(role)(text)

    def _pieces_after(
        self, roles: tuple[str, ...], *, follows_calls: bool = False
    ) -> tuple[str | Slot, ...]:
        """Return the template's text with slots for the body of each message, and for tool names if
        the family writes them. `follows_calls` means that the turn ended with tool calls."""
        end = len(roles)
        bodies = [_BODY.format(number) for number in range(end)]
        has_calls = self._family.names_results and (follows_calls or "tool" in roles)
        turn = self._turn(roles, _BODY.format(end), has_calls=has_calls)
        messages = [QUESTION, turn, *_messages(roles, bodies)]
        _, found, after = self._render(messages).rpartition(_BODY.format(end))
        if not found:
            raise UnknownFamily(
                f"the template of {self._family.name} does not render the assistant's content, "
                "or the arguments of its calls; a training template must render both unchanged"
            )
        if has_calls:
            after = after.partition(self._family.end_of_calls or self._family.end_of_turn)[2]
        pieces = list(_pieces(after.removeprefix(self._family.end_of_turn)))
        slots = [piece for piece in pieces if isinstance(piece, Slot)]
        if [slot.message for slot in slots if not slot.is_name] != list(range(end)):
            raise UnknownFamily(
                f"the template of {self._family.name} leaves out or reorders messages of the roles "
                f"{', '.join(roles)}; a training template must render each once"
            )
        quoted = {n for n, role in enumerate(roles) if self._transform_of(role) is _as_json}
        return tuple(_without_quotes(pieces, quoted))

    def _transform_of(self, role: str) -> Callable[[str], str]:
        return self._transforms["tool" if role == "tool" else "user"]

    def _turn(self, roles: Sequence[str], marker: str, *, has_calls: bool) -> ChatMessage:
        """Return a turn of the model before messages of these roles, with the marker as its content
        or as an argument of each call."""
        if not has_calls:
            return {"role": "assistant", "content": marker}
        numbers = [number for number, role in enumerate(roles) if role == "tool"] or [0]
        calls = [chat_call(_NAME.format(number), {"-": marker}, str(number)) for number in numbers]
        return {"role": "assistant", "content": "", "tool_calls": calls}

    def _detect_transform(self, role: str) -> Callable[[str], str]:
        """Return the function that the template applies to a message's text: identity, JSON string,
        or trimming."""
        turn = self._turn([role], "-", has_calls=self._family.names_results and role == "tool")

        def rendered(body: str) -> str:
            return self._render([QUESTION, turn, *_messages([role], [body])])

        before, _, after = rendered(_BODY.format(0)).partition(_BODY.format(0))
        if before.endswith('"') and after.startswith('"'):
            before, after = before[:-1], after[1:]
        probe = rendered(_PROBE)
        body = probe[len(before) : len(probe) - len(after)]
        for transform in _TRANSFORMS:
            if transform(_PROBE) == body:
                return transform
        raise UnknownFamily(
            f"the template of {self._family.name} changes the text of {role} messages; "
            "a training template must render it unchanged, trimmed, or as a JSON string"
        )


def _messages(roles: Sequence[str], bodies: Sequence[str]) -> Iterator[ChatMessage]:
    for number, (role, body) in enumerate(zip(roles, bodies, strict=True)):
        message = ChatMessage(role=role, content=body)
        if role == "tool":
            message["tool_call_id"] = str(number)
        yield message


def _pieces(text: str) -> Iterator[str | Slot]:
    place = 0
    for found in _SLOTS.finditer(text):
        yield text[place : found.start()]
        yield Slot(int(found[2]), is_name=found[1] == "NAME")
        place = found.end()
    yield text[place:]


def _without_quotes(pieces: list[str | Slot], quoted: set[int]) -> Iterator[str | Slot]:
    """Yield the pieces without the quotes around the bodies of these messages, because their bodies
    are JSON strings with quotes."""
    bodies = {
        place
        for place, piece in enumerate(pieces)
        if isinstance(piece, Slot) and not piece.is_name and piece.message in quoted
    }
    for place, piece in enumerate(pieces):
        if isinstance(piece, str) and place + 1 in bodies:
            piece = piece.removesuffix('"')
        if isinstance(piece, str) and place - 1 in bodies:
            piece = piece.removeprefix('"')
        yield piece
