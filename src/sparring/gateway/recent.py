"""What a session's last request held, so that the next one is read only where it differs.

Agents send their whole history with every call. Messages that come back unchanged are the same
objects again, which also spares the message tree comparing them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparring.contracts.rollouts import Message

ReadMessage = Callable[[Any, str], Message]


class RecentRequest:
    """The messages of a session's last request, as they came and as they were read.

    They are compared as Python compares values, where 1 equals true: it is for formats whose
    fields are texts, not for one whose arguments are objects.
    """

    def __init__(self) -> None:
        self._given: list[Any] = []
        self._messages: list[Message] = []

    def messages(self, given: list[Any], read: ReadMessage, name: str) -> tuple[Message, ...]:
        """Return the messages of a request; reads those that the last one did not have in the same
        place. `read` gets a message and where it is."""
        same = 0
        for message, known in zip(given, self._given, strict=False):
            if message != known:
                break
            same += 1
        new = [
            read(message, f"{name}[{number}]")
            for number, message in enumerate(given[same:], start=same)
        ]
        self._messages = [*self._messages[:same], *new]
        self._given = given
        return tuple(self._messages)
