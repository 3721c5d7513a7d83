"""Caches a session's last request, so that the next one is parsed only from where it differs.

Agents send their whole history with every call. An unchanged message is returned as the same
object, so the message tree does not have to compare it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparring.contracts.rollouts import Message

ReadMessage = Callable[[Any, str], Message]


class RecentRequest:
    """The messages of a session's last request, raw and parsed.

    Raw messages are compared with `==`, for which 1 equals True. This is exact for Chat
    Completions, where arguments are JSON text, but not for formats with arguments as objects.
    """

    def __init__(self) -> None:
        self._given: list[Any] = []
        self._messages: list[Message] = []

    def messages(self, given: list[Any], read: ReadMessage, name: str) -> tuple[Message, ...]:
        """Return the parsed messages of a request. `read(message, location)` parses each message
        from the first that differs from the last request."""
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
