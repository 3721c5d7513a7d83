"""A small HTTP client for JSON servers: keep-alive connections, one pool per event loop.

A general-purpose client takes several milliseconds of CPU per request and processes the body in
Python. A rollout sends its whole conversation in every turn, so this cost would grow with every
turn.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import orjson

_BUFFER = 2**24
_CONNECT_SECONDS = 10.0
_BROKEN = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, EOFError)


class ConnectionBroken(Exception):
    """The server cannot be reached, did not answer in time, or closed the connection."""


@dataclass(frozen=True, slots=True)
class JsonReply:
    """The status and the body of a response."""

    status: int
    body: bytes

    @property
    def is_ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    def json(self) -> Any:
        """Return the decoded body; None if it is not JSON."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None

    def excerpt(self) -> str:
        """Return the first 300 bytes of the body as text, for an error message."""
        return self.body[:300].decode("utf-8", "replace")


@dataclass(slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def close(self) -> None:
        self.writer.close()


class JsonHttp:
    """A client of one server. `connections` is the number of connections opened so far; if it
    grows, the server may have been restarted."""

    def __init__(self, base_url: str, *, key: str | None = None) -> None:
        parts = urlsplit(base_url)
        self._host = parts.hostname or ""
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._path = parts.path.rstrip("/")
        self._key = f"authorization: Bearer {key}\r\n" if key else ""
        self._idle: WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Connection]] = (
            WeakKeyDictionary()
        )
        self.connections = 0

    async def post(self, path: str, value: Any, seconds: float) -> JsonReply:
        """Send a JSON value and return the reply, whatever its status. Raises ConnectionBroken if
        the request fails or takes longer than `seconds`."""
        return await self._request("POST", path, orjson.dumps(value), seconds)

    async def get(self, path: str, seconds: float) -> JsonReply:
        """Send a GET request and return the reply, whatever its status. Raises ConnectionBroken if
        the request fails or takes longer than `seconds`."""
        return await self._request("GET", path, b"", seconds)

    async def _request(self, method: str, path: str, body: bytes, seconds: float) -> JsonReply:
        message = (
            f"{method} {self._path}{path} HTTP/1.1\r\nhost: {self._host}:{self._port}\r\n"
            f"{self._key}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode() + body
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(message)
        except TimeoutError as error:
            limits = f"no connection in {_CONNECT_SECONDS:g} s, or no answer within {seconds:g} s"
            raise ConnectionBroken(limits) from error
        except _BROKEN as error:
            raise ConnectionBroken(f"{type(error).__name__}: {error}") from error

    async def _exchange(self, message: bytes) -> JsonReply:
        idle = self._idle.setdefault(asyncio.get_running_loop(), [])
        while True:
            is_reused = bool(idle)
            connection = idle.pop() if idle else await self._connect()
            is_clean = False
            try:
                connection.writer.write(message)
                try:
                    head = await connection.reader.readuntil(b"\r\n\r\n")
                except (OSError, asyncio.IncompleteReadError):
                    if is_reused:  # the server may close an idle connection
                        continue
                    raise
                reply, is_clean = await _read_reply(head, connection.reader)
                return reply
            finally:
                if is_clean:
                    idle.append(connection)
                else:
                    connection.close()

    async def _connect(self) -> _Connection:
        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                self._host, self._port, ssl=self._tls, limit=_BUFFER
            )
        self.connections += 1
        return _Connection(reader, writer)


async def _read_reply(head: bytes, reader: asyncio.StreamReader) -> tuple[JsonReply, bool]:
    """Return the reply, and whether the connection can be reused."""
    first, *lines = head.decode("latin-1").split("\r\n")
    status = int(first.split(" ", 2)[1])
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines if line)
    }
    is_kept = headers.get("connection", "").lower() != "close"
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return JsonReply(status, await _read_chunks(reader)), is_kept
    if "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
        return JsonReply(status, body), is_kept
    if status == 204:
        return JsonReply(status, b""), is_kept
    return JsonReply(status, await reader.read()), False


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return b"".join(parts)
