"""Clients of OpenAI-compatible servers. A leaf that policies and measures share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sparring.contracts.specs import EndpointSpec
from sparring.secrets import read_key

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class EndpointClient:
    """A client for one endpoint, made anew for each event loop that asks for it.

    Connections belong to the loop that opened them, and a notebook's second evaluation runs
    in another loop than its first. The client retries 429, 5xx and broken connections, with
    the server's own pause. The key is read when the first client is made.
    """

    def __init__(self, endpoint: EndpointSpec, *, retries: int = 5, seconds: float = 120.0) -> None:
        self._endpoint = endpoint
        self._retries = retries
        self._seconds = seconds
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncOpenAI] = (
            WeakKeyDictionary()
        )

    def get(self) -> AsyncOpenAI:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            self._by_loop[loop] = self._connect()
        return self._by_loop[loop]

    def _connect(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        key = read_key(self._endpoint.key_variable)
        return AsyncOpenAI(
            api_key=key.get_secret_value() if key else "none",
            base_url=self._endpoint.base_url,
            max_retries=self._retries,
            timeout=self._seconds,
        )
