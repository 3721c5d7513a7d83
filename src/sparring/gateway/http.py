"""HTTP requests with a session's key, and responses that are sent in one piece.

The module uses ASGI messages directly, to keep the overhead of each model call low.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, MutableMapping
from dataclasses import dataclass
from typing import Any, cast

from starlette.types import Receive, Scope, Send

from sparring.gateway.wire import Refused

_MAX_BODY_BYTES = 32 * 1024 * 1024
_BODY_SECONDS = 30.0


class Disconnected(Exception):
    """The client disconnected before it received a response."""


class Request:
    """One request to `[/session/KEY][/v1]/PATH`; `path` is PATH, and `path_key` is KEY or empty."""

    __slots__ = ("_headers", "_receive", "full_path", "method", "path", "path_key")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.full_path: str = scope["path"]
        self.path_key = ""
        path = self.full_path.lstrip("/")
        if path.startswith("session/"):
            _, self.path_key, path = [*path.split("/", 2), ""][:3]
        self.path = path.removeprefix("v1/").rstrip("/")
        self._headers: dict[bytes, bytes] = dict(scope["headers"])
        self._receive = receive

    def header(self, name: bytes) -> str:
        """Return a header's value; empty if the request has no such header."""
        return self._headers.get(name, b"").decode("latin-1")

    @property
    def header_key(self) -> str:
        """The API key, from `Authorization` (OpenAI) or `X-Api-Key` (Anthropic)."""
        kind, _, token = self.header(b"authorization").partition(" ")
        bearer = token.strip() if kind.lower() == "bearer" else ""
        return bearer or self.header(b"x-api-key")

    def is_disconnected(self) -> bool:
        """Return whether the client has disconnected; valid only after the body has been read."""
        message = _poll(self._receive)
        return message is not None and message["type"] == "http.disconnect"

    async def json(self) -> dict[str, Any]:
        """Return the body; raises Refused if it is too large, too slow or not a JSON object."""
        try:
            text = (await self._body()).decode("utf-8", "surrogatepass")
            body = _DECODER.decode(text)
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"the body is not JSON: {error}") from None
        if not isinstance(body, dict):
            raise Refused(400, "the body must be a JSON object")
        return body

    async def _body(self) -> bytes:
        message = _poll(self._receive)
        content = b"" if message is None else _chunk(message)
        _check_size(len(content))
        if message is not None and not message.get("more_body"):
            return content
        chunks, size = [content], len(content)
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                while message is None or message.get("more_body"):
                    message = await self._receive()
                    chunks.append(_chunk(message))
                    size += len(chunks[-1])
                    _check_size(size)
        except TimeoutError:
            raise Refused(408, f"the body was not sent within {_BODY_SECONDS:g} s") from None
        return b"".join(chunks)


@dataclass(frozen=True, slots=True)
class Response:
    """One response, sent in one piece."""

    status: int
    body: bytes = b""
    media_type: bytes = b"application/json"

    @classmethod
    def of_json(cls, content: Any, status: int = 200) -> Response:
        """Return a JSON response in ASCII: texts may have surrogates, which UTF-8 cannot encode."""
        return cls(status, json.dumps(content).encode("ascii"))

    async def send(self, send: Send) -> None:
        """Send the status, the headers and the body."""
        headers = [
            (b"content-type", self.media_type),
            (b"content-length", str(len(self.body)).encode("ascii")),
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def _check_size(number: int) -> None:
    if number > _MAX_BODY_BYTES:
        raise Refused(413, f"the body has more than {_MAX_BODY_BYTES:,} bytes")


def _chunk(message: MutableMapping[str, Any]) -> bytes:
    if message["type"] == "http.disconnect":
        raise Disconnected
    return bytes(message.get("body", b""))


def _poll(receive: Receive) -> MutableMapping[str, Any] | None:
    """Return the next ASGI message if it has arrived, else None. Waiting would need a task or a
    timer, which costs more than reading the request."""
    waiting = cast("Coroutine[Any, Any, MutableMapping[str, Any]]", receive())
    try:
        waiting.send(None)
    except StopIteration as done:
        return cast("MutableMapping[str, Any]", done.value)
    waiting.close()
    return None


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_reject_constant)
