"""Measures the CPU that a turn through sampling servers costs the process that plays.

Samples the same requests alternately with `ServerPolicy` and with a scripted policy. The server
replies immediately with the scripted tokens; it is another process, whose CPU is not counted.
Prompts have 500 to 8,000 tokens.

Bar: at most 1.5 ms of CPU per turn above the scripted policy, at every length.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from array import array
from typing import Any

from sparring.contracts.policies import (
    Finish,
    PublishedWeights,
    Sample,
    SampleKey,
    SampleRequest,
    Sampling,
)
from sparring.contracts.rollouts import RolloutKey
from sparring.models.tiny import build_tokenizer
from sparring.policies.families import family_named
from sparring.policies.server_policy import ServerPolicy
from sparring.services import free_port

LENGTHS, BAR_MS = (500, 2000, 8000), 1.5
TOKENS = list(range(5, 29))
SERVER = """
import asyncio, json, sys
ids = json.loads(sys.argv[2])
choice = {"index": 0, "text": "", "finish_reason": "stop", "token_ids": ids,
          "logprobs": {"token_logprobs": [-0.5] * len(ids)}}
body = json.dumps({"id": "x", "object": "text_completion", "choices": [choice]}).encode()
reply = b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body
async def answer(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\\r\\n")[0])
            await reader.readexactly(length)
            writer.write(reply)
    except asyncio.IncompleteReadError:
        writer.close()
async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", int(sys.argv[1]), limit=2**24)
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


class Scripted:
    """Replies immediately, in this process."""

    async def sample(self, _: SampleRequest) -> Sample:
        """Return the scripted tokens."""
        await asyncio.sleep(0)
        return Sample(array("i", TOKENS), array("f", [-0.5] * len(TOKENS)), Finish.STOP)


def requests(length: int, count: int) -> list[SampleRequest]:
    """Return requests whose prompts have this many tokens."""
    prompt = array("i", [1 + number % 400 for number in range(length)])
    return [
        SampleRequest(SampleKey(RolloutKey(0, 0, f"c{n % 8}", n), 0), prompt, Sampling(0.8, 64))
        for n in range(count)
    ]


def cpu_ms(policy: Any, loop: asyncio.AbstractEventLoop, turns: list[SampleRequest]) -> float:
    """Return the CPU milliseconds per turn, with 16 turns at the same time."""

    async def play() -> None:
        for start in range(0, len(turns), 16):
            await asyncio.gather(*(policy.sample(each) for each in turns[start : start + 16]))

    began = time.process_time()
    loop.run_until_complete(play())
    return 1000 * (time.process_time() - began) / len(turns)


def main() -> int:
    """Print the figures; return 1 if they miss the bar."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    count, rounds = (64, 3) if parser.parse_args().quick else (320, 5)
    port = free_port()
    command = [sys.executable, "-c", SERVER, str(port), json.dumps(TOKENS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            address = f"http://127.0.0.1:{port}"
            policy = ServerPolicy([address], build_tokenizer(), family_named("qwen3"))
            policy.use(PublishedWeights(0, "run-v0", "/none"))
            loop, above = asyncio.new_event_loop(), {}
            for length in LENGTHS:
                turns = requests(length, count)
                cpu_ms(policy, loop, turns[:32])
                differences = [
                    cpu_ms(policy, loop, turns) - cpu_ms(Scripted(), loop, turns)
                    for _ in range(rounds)
                ]
                above[str(length)] = round(statistics.median(differences), 3)
        finally:
            server.kill()
    is_met = max(above.values()) <= BAR_MS
    print(json.dumps({"benchmark": "server_policy", "ms_per_turn_above_scripted": above,
                      "bar_ms": BAR_MS, "ok": is_met}))  # fmt: skip
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
