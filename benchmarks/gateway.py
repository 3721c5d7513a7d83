"""Measures what a call through the gateway costs its server: CPU per call, and memory per session.

All sessions are in flight at once, and call the model in rounds of one tool call each; a policy
with a fixed reply answers. The clients run in a separate process. CPU is that of the server's
process: the HTTP server, matching, tokenising new messages, parsing replies, and exchanging
requests and replies with the clients' process.

Bars: at most 1.5 ms for a call with ten messages, at 16, 256 and 2,048 sessions in flight; the
memory that Python allocates per session is at most 1.25 times as large at one size as at another.
`by_messages` shows how the cost grows with the length of a conversation.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import sys
import time
import tracemalloc
from array import array
from multiprocessing.connection import Connection

from sparring.contracts.cases import Case
from sparring.contracts.policies import Finish, Sample, SampleRequest
from sparring.contracts.rollouts import Message, RequestedCall, RolloutKey
from sparring.contracts.specs import Limits
from sparring.gateway.capture import Capture
from sparring.gateway.server import GatewayServer
from sparring.models.tiny import build_tokenizer
from sparring.player.episode import Episode
from sparring.policies.codec import ChatCodec
from sparring.policies.families import family_named

BAR_MS, BAR_MESSAGES = 1.5, 10
FLAT = 1.25
QUICK_BAR_MS = 2.5  # for a few short rounds on a busy machine
LIMITS = Limits(max_turns=1001, completion_tokens=1 << 30)
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look something up in the catalogue of the shop.",
        "parameters": {
            "type": "object",
            "properties": {"item": {"type": "string", "description": "what to look up"}},
            "required": ["item"],
        },
    },
}
START = [
    {
        "role": "system",
        "content": "You help customers of a shop. Look things up before you answer.",
    },
    {"role": "user", "content": "Which lamps do you have, and what does the cheapest one cost?"},
]
RESULT = "lamp: 3 in stock, 24 dollars; desk lamp: 1 in stock, 31 dollars; lantern: none in stock"


class FixedPolicy:
    """Replies with the same tool call every time."""

    name = "fixed"
    samples_in_lockstep = False

    def __init__(self) -> None:
        self.codec = ChatCodec(build_tokenizer(), family_named("qwen3"))
        call = RequestedCall("c", "look", '{"item": "lamp"}')
        ids = self.codec.encode_reply(Message("assistant", "", calls=(call,)))
        self._sample = Sample(ids, array("f", bytes(4 * len(ids))), Finish.STOP)

    def join(self) -> None: ...

    def leave(self) -> None: ...

    async def sample(self, request: SampleRequest) -> Sample:
        return self._sample


def send_requests(port: int, pipe: Connection) -> None:
    """Run the clients: send all requests of a round at once, each session on its own connection."""
    asyncio.run(_send_requests(port, pipe))


async def _send_requests(port: int, pipe: Connection) -> None:
    connections: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def send(key: str, body: bytes) -> tuple[str, bytes]:
        if key not in connections:
            connections[key] = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = connections[key]
        head = (
            f"POST /session/{key}/v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return key, await reader.readexactly(length)

    while (requests := await asyncio.to_thread(pipe.recv)) is not None:
        answers = await asyncio.gather(*(send(key, body) for key, body in requests))
        pipe.send(answers)
        if not requests:
            for _, writer in connections.values():
                writer.close()
            connections.clear()


class Bench:
    """Plays batches of sessions in rounds, and measures the CPU of each round."""

    def __init__(self) -> None:
        self.policy = FixedPolicy()
        self.server = GatewayServer()
        self.pipe, other = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self.clients = context.Process(target=send_requests, args=(self.server.port, other))
        self.clients.start()

    async def batch(self, sessions: int, rounds: int) -> tuple[list[float], float]:
        """Return the CPU seconds of each round, and the bytes that each session holds at the end,
        which are 0 unless `tracemalloc` traces them."""
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        opened = []
        for number in range(sessions):
            key = RolloutKey(0, 0, f"c{number}", 0)
            episode = Episode(key, Case(key.case_id, "Which lamps?"), LIMITS)
            capture = Capture(episode, self.policy, 0.8)
            opened.append(self.server.sessions.open(capture))
        conversations = {session.key: list(START) for session in opened}
        seconds = []
        for _ in range(rounds):
            requests = [
                (key, json.dumps({"model": "m", "messages": messages, "tools": [TOOL]}).encode())
                for key, messages in conversations.items()
            ]
            started = time.process_time()
            self.pipe.send(requests)
            answers = await asyncio.to_thread(self.pipe.recv)
            seconds.append(time.process_time() - started)
            for key, answer in answers:
                message = json.loads(answer)["choices"][0]["message"]
                call = message["tool_calls"][0]["id"]
                conversations[key] += [
                    message,
                    {"role": "tool", "tool_call_id": call, "content": RESULT},
                ]
        requests, answers, conversations = [], [], {}
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] - before
        for session in opened:
            (row,) = session.capture.rows()
            assert sum(span.kind == "sampled" for span in row.spans) == rounds
            self.server.sessions.close(session)
        self.pipe.send([])  # an empty round closes the connections
        await asyncio.to_thread(self.pipe.recv)
        return seconds, used / sessions

    def close(self) -> None:
        self.pipe.send(None)
        self.clients.join(timeout=10)
        self.server.close()


async def measure(bench: Bench, sessions: int, calls: int, rounds: int) -> dict[str, object]:
    """Return CPU per call by number of messages, and memory per session, at this many sessions."""
    tracemalloc.start()
    _, memory = await bench.batch(sessions, rounds)
    tracemalloc.stop()
    batches = max(1, calls // sessions)
    totals = [0.0] * rounds
    for _ in range(batches):
        seconds, _ = await bench.batch(sessions, rounds)
        totals = [total + each for total, each in zip(totals, seconds, strict=True)]
    by_messages = {
        2 + 2 * number: round(1000 * total / (sessions * batches), 3)
        for number, total in enumerate(totals)
    }
    return {
        "sessions": sessions,
        "ms_per_call": by_messages[BAR_MESSAGES],
        "by_messages": by_messages,
        "kib_per_session": round(memory / 1024, 1),
    }


async def run(*, quick: bool) -> dict[str, object]:
    bench = Bench()
    try:
        await bench.batch(16, 5)  # warm-up
        calls = 256 if quick else 2048
        sizes = (16, 256) if quick else (16, 256, 2048)
        curve = [await measure(bench, sessions, calls, rounds=5) for sessions in sizes]
        longer = await measure(bench, 16, 64 if quick else 256, rounds=40)
    finally:
        bench.close()
    worst = max(float(str(each["ms_per_call"])) for each in curve)
    bar = QUICK_BAR_MS if quick else BAR_MS
    memory = [float(str(each["kib_per_session"])) for each in curve]
    growth = round(max(memory) / min(memory), 2)
    return {
        "benchmark": "gateway",
        "curve": curve,
        "longer_conversations_ms": longer["by_messages"],
        "worst_ms_per_call": worst,
        "bar_ms": bar,
        "memory_growth": growth,
        "memory_bar": FLAT,
        "passed": worst <= bar and growth <= FLAT,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two sizes, fewer calls, a higher bar")
    result = asyncio.run(run(quick=parser.parse_args().quick))
    print(json.dumps(result))
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
