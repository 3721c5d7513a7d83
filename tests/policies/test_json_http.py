"""The small HTTP client: connections are kept, broken ones replaced, replies read as sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.policies.json_http import ConnectionBroken, JsonHttp

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    return head + await reader.readexactly(length)


async def with_server(answer: Answer, work: Callable[[JsonHttp], Awaitable[None]]) -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        await work(JsonHttp(f"http://127.0.0.1:{port}/base"))


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every request of a connection with its body."""
    try:
        while True:
            request = await read_request(reader)
            body = request.partition(b"\r\n\r\n")[2] or b"{}"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    except asyncio.IncompleteReadError:
        writer.close()


def test_requests_share_one_connection() -> None:
    async def work(http: JsonHttp) -> None:
        for number in range(5):
            assert (await http.post("/x", {"n": number}, 5)).json() == {"n": number}
        assert http.connections == 1

    asyncio.run(with_server(echo, work))


def test_requests_at_the_same_time_get_their_own_replies() -> None:
    async def work(http: JsonHttp) -> None:
        replies = await asyncio.gather(*(http.post("/x", {"n": n}, 5) for n in range(20)))
        assert [reply.json()["n"] for reply in replies] == list(range(20))

    asyncio.run(with_server(echo, work))


def test_a_connection_that_the_server_closed_while_idle_is_replaced() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async def work(http: JsonHttp) -> None:
        for _ in range(3):
            assert (await http.post("/x", {}, 5)).is_ok
        assert http.connections == 3

    asyncio.run(with_server(once, work))


def test_a_server_that_ends_in_mid_answer_is_broken() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()

    async def work(http: JsonHttp) -> None:
        with pytest.raises(ConnectionBroken, match="IncompleteReadError"):
            await http.post("/x", {}, 5)

    asyncio.run(with_server(half, work))


def test_a_server_that_is_not_there_is_broken() -> None:
    async def work() -> None:
        with pytest.raises(ConnectionBroken):
            await JsonHttp("http://127.0.0.1:9").post("/x", {}, 5)

    asyncio.run(work())


def test_a_silent_server_times_out() -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await read_request(reader)

    async def work(http: JsonHttp) -> None:
        with pytest.raises(ConnectionBroken, match="no answer within"):
            await http.post("/x", {}, 0.05)

    asyncio.run(with_server(silent, work))


def test_the_path_and_the_key_are_sent() -> None:
    seen: list[bytes] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def work() -> None:
        server = await asyncio.start_server(note, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            await JsonHttp(f"http://127.0.0.1:{port}/base/", key="k").get("/health", 5)

    asyncio.run(work())
    assert seen[0].startswith(b"GET /base/health HTTP/1.1\r\n")
    assert b"authorization: Bearer k\r\n" in seen[0]


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=5))
def test_a_body_in_chunks_is_read_whole(parts: list[bytes]) -> None:
    async def chunked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for part in parts:
                writer.write(b"%x\r\n" % len(part) + part + b"\r\n")
            writer.write(b"0\r\n\r\n")

    async def work(http: JsonHttp) -> None:
        for _ in range(2):
            assert (await http.post("/x", {}, 5)).body == b"".join(parts)
        assert http.connections == 1

    asyncio.run(with_server(chunked, work))
