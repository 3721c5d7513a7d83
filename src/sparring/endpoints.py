"""Clients of OpenAI-compatible servers, for policies and measures. A leaf."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.specs import EndpointSpec
from sparring.secrets import read_key

if TYPE_CHECKING:
    from openai import AsyncOpenAI, BadRequestError
    from pydantic import SecretStr

_LOG = logging.getLogger(__name__)
_RENAMED = {"max_tokens": "max_completion_tokens"}
# If the server rejects one of these arguments, it is left out, and the model uses its default.
_DROPPABLE = frozenset(
    {
        "temperature",
        "top_p",
        "seed",
        "frequency_penalty",
        "presence_penalty",
        "parallel_tool_calls",
    }
)
# Semaphores that limit concurrent requests, by the server's address and the limit.
_Turns = dict[tuple[str, int], asyncio.Semaphore]
_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()
_UNSUPPORTED = re.compile(r"unsupported|not support|only the default|unknown|unrecognized", re.I)


def turn_at(base_url: str, at_once: int) -> asyncio.Semaphore:
    """Return the semaphore that limits requests to a server to `at_once`.

    Callers in the same event loop with the same address and limit share it.
    """
    turns = _TURNS.setdefault(asyncio.get_running_loop(), {})
    return turns.setdefault((base_url, at_once), asyncio.Semaphore(at_once))


class EndpointClient:
    """Clients of one endpoint, one per event loop.

    Connections belong to the event loop that opened them, and each evaluation in a notebook runs in
    a new loop. A client retries 429, 5xx and broken connections, and honours the server's
    `Retry-After`. The key is read when a client is created.
    """

    def __init__(self, endpoint: EndpointSpec, *, retries: int = 5, seconds: float = 120.0) -> None:
        self._endpoint = endpoint
        self._renamed: dict[str, str] = {}
        self._dropped: set[str] = set()
        self._retries = retries
        self._seconds = seconds
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncOpenAI] = (
            WeakKeyDictionary()
        )

    def get(self) -> AsyncOpenAI:
        """Return the client of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            self._by_loop[loop] = self._connect()
        return self._by_loop[loop]

    async def chat(self, **request: Any) -> Any:
        """Request one chat completion.

        If the server rejects an argument, the request is sent again with the argument renamed or
        left out. All later requests are changed in the same way. Raises InfrastructureError if the
        server requires a key and none was sent.
        """
        from openai import AuthenticationError, BadRequestError

        while True:
            sent = self._adapt(request)
            try:
                return await self.get().chat.completions.create(**sent)
            except BadRequestError as error:
                if not self._can_adapt_to(error, sent):
                    raise
            except AuthenticationError as error:
                if self._key() is not None:
                    raise
                raise InfrastructureError(self._key_advice()) from error

    def _key(self) -> SecretStr | None:
        return read_key(self._endpoint.key_variable)

    def _key_advice(self) -> str:
        variable, url = self._endpoint.key_variable, self._endpoint.base_url
        if variable is None:
            return (
                f"{url} requires a key: name the environment variable that holds it with "
                "--key-variable, or with key_variable in Python"
            )
        return f"{url} requires a key: set {variable}, or set {variable}_FILE to the path of a file"

    def _adapt(self, request: dict[str, Any]) -> dict[str, Any]:
        return {
            self._renamed.get(name, name): value
            for name, value in request.items()
            if name not in self._dropped
        }

    def _can_adapt_to(self, error: BadRequestError, sent: dict[str, Any]) -> bool:
        """Record that the argument named in the error must be renamed or dropped. Return False if
        the error names no such argument."""
        message = str(error)
        for old, new in _RENAMED.items():
            if old in sent and new in message:
                self._renamed[old] = new
                return True
        if not _UNSUPPORTED.search(message):
            return False
        for name in sorted(_DROPPABLE & set(sent)):
            if error.param == name or re.search(rf"['\"`]{name}['\"`]", message):
                self._dropped.add(name)
                _LOG.warning(
                    f"{self._endpoint.model} does not accept {name}={sent[name]!r}; the model's "
                    "default is used"
                )
                return True
        return False

    def _connect(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        key = self._key()
        return AsyncOpenAI(
            api_key=key.get_secret_value() if key else "none",
            base_url=self._endpoint.base_url,
            max_retries=self._retries,
            timeout=self._seconds,
        )
