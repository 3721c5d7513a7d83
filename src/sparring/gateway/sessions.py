"""Sessions: an agent calls the model with a random key, which is valid for one rollout.

A call that the server's event loop reads is answered on the loop that plays the rollout, through
its mailbox. Agents send their whole history with every call, so a request is parsed only from where
it differs from the last one. An unchanged message is returned as the same object, so the message
tree does not have to compare it. Programs outside this process get cases and sessions as JSON,
without expected answers.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sparring.contracts.cases import Case
from sparring.contracts.chat import ChatMessage, chat_message
from sparring.contracts.rollouts import Message
from sparring.gateway.capture import Capture
from sparring.gateway.wire import Refused
from sparring.player.conversation import to_messages


class Mailbox:
    """Runs functions on one event loop, in the order in which other threads post them.

    Waiting functions share one wakeup, because a wakeup costs a system call on both sides. A
    function must not raise.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def post(self, function: Callable[[], None]) -> None:
        """Have the loop call this function soon; raises RuntimeError if the loop is closed."""
        self._waiting.append(function)
        if self._is_scheduled:
            return
        self._is_scheduled = True
        try:
            self.loop.call_soon_threadsafe(self._empty)
        except RuntimeError:
            self._is_scheduled = False
            self._waiting.clear()
            raise

    def _empty(self) -> None:
        self._is_scheduled = False  # first, so that the next post wakes the loop again
        while self._waiting:
            self._waiting.popleft()()


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


_KEY_PREFIX = "sk-sparring-"
_REMEMBERED = 100_000


@dataclass(frozen=True, slots=True)
class Session:
    """The case, the world and the access to the model for one rollout of an agent.

    `base_url` is for OpenAI clients, `anthropic_base_url` for Anthropic clients, and `api_key` for
    both. `model` is the name of the model that answers every call, whichever model the call
    names. `world` is the value that the environment's `world` returned. `count_calls` returns the
    number of model calls so far.
    """

    base_url: str
    anthropic_base_url: str
    api_key: str
    model: str
    case: Case
    world: Any = field(default=None, repr=False)
    count_calls: Callable[[], int] = field(default=int, repr=False, compare=False)

    @property
    def messages(self) -> list[ChatMessage]:
        """The case's input as Chat Completions messages."""
        return chat_messages(self.case)

    def variables(self) -> dict[str, str]:
        """Return the variables that OpenAI's and Anthropic's clients read, and SPARRING_MODEL."""
        return {
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_KEY": self.api_key,
            "ANTHROPIC_BASE_URL": self.anthropic_base_url,
            "ANTHROPIC_API_KEY": self.api_key,
            "SPARRING_MODEL": self.model,
        }


@dataclass(frozen=True, slots=True)
class OpenSession:
    """The session of a rollout in play. `mailbox` belongs to the event loop that plays it.

    The Responses API stores conversations in `responses`, as lists of items by response id, and
    single output items in `items`, by id.
    """

    key: str
    capture: Capture
    mailbox: Mailbox
    recent: RecentRequest = field(default_factory=RecentRequest)
    responses: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    items: dict[str, Any] = field(default_factory=dict)


class Sessions:
    """The open sessions by key. Calls with one of the last 100,000 ended keys get status 410."""

    def __init__(self) -> None:
        self._open: dict[str, OpenSession] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._mailbox: Mailbox | None = None

    def __len__(self) -> int:
        return len(self._open)

    def open(self, capture: Capture) -> OpenSession:
        """Open a session with a random key, whose calls the running event loop answers."""
        key = _KEY_PREFIX + secrets.token_urlsafe(24)
        loop = asyncio.get_running_loop()
        if self._mailbox is None or self._mailbox.loop is not loop:
            self._mailbox = Mailbox(loop)
        session = OpenSession(key, capture, self._mailbox)
        self._open[key] = session
        return session

    def close(self, session: OpenSession) -> None:
        """End a session: cancel its pending calls and refuse later calls with its key."""
        session.capture.close()
        self._open.pop(session.key, None)
        self._ended[session.key] = None
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)

    def find(self, in_path: str, in_header: str) -> OpenSession:
        """Return the session of a request, by the key in its path or header. Raises Refused if the
        key is unknown, the session has ended, or path and header belong to two open sessions."""
        found = {key for key in (in_path, in_header) if key in self._open}
        if len(found) == 1 and not (in_path and in_path not in found):
            return self._open[found.pop()]
        if len(found) == 2:
            raise Refused(401, "the API key and the URL belong to different sessions")
        if in_path in self._ended or (not in_path and in_header in self._ended):
            raise Refused(410, "this rollout has ended; its session takes no more calls")
        raise Refused(401, "no session has this key; use the session's base_url and api_key")


def chat_messages(case: Case) -> list[ChatMessage]:
    """Return a case's input as Chat Completions messages."""
    if isinstance(case.input, str):
        return [{"role": "user", "content": case.input}]
    return [chat_message(message) for message in to_messages(case.input)]


def case_record(case: Case) -> dict[str, Any]:
    """Return the case as JSON values: its id, its input, and the input as chat messages."""
    return {"id": case.id, "input": case.input, "messages": chat_messages(case)}


def case_text(case: Case) -> str:
    """Return the case as JSON text."""
    return json.dumps(case_record(case), ensure_ascii=False)


def session_record(session: Session) -> dict[str, str]:
    """Return the URLs, the key and the model name with which a program calls the model."""
    return {
        "base_url": session.base_url,
        "anthropic_base_url": session.anthropic_base_url,
        "api_key": session.api_key,
        "model": session.model,
    }
