"""Agents that are services of the user."""

import asyncio
import json
import socket
import struct
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from openai import AsyncOpenAI

from sparring.contracts.rollouts import Ending
from sparring.gateway.agents import GatewayAgent
from sparring.gateway.remote import RemoteProgram
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.gateway.playing import ADD, SDK_AGENT, calls_tool, loop, play_all


class Service(BaseHTTPRequestHandler):
    def do_POST(self):
        given = json.loads(self.rfile.read(int(self.headers["content-length"])))
        session = given["session"]

        async def play():
            async with AsyncOpenAI(
                base_url=session["base_url"], api_key=session["api_key"]
            ) as client:
                return await loop(client, session["model"], given["case"]["messages"])

        body = json.dumps({"answer": asyncio.run(play())}).encode()
        self.send_response(200 if self.path == "/rollout" else 500)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@contextmanager
def service(handler=Service):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def played(url, codecs):
    agent = GatewayAgent("tested", RemoteProgram(url))
    (rollout,) = play_all(agent, ScriptedPolicy(calls_tool(ADD), codecs["qwen3"]))
    return rollout


class Overrun(Service):
    """Breaks the first connections, as a service with a short queue does in a burst."""

    broken = 0

    def do_POST(self):
        if Overrun.broken < 3:
            Overrun.broken += 1
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            return
        super().do_POST()


def test_a_connection_that_breaks_before_the_first_call_is_tried_again(codecs, monkeypatch):
    monkeypatch.setattr("sparring.gateway.remote._PAUSE_SECONDS", 0.0)
    with service(Overrun) as address:
        rollout = played(f"{address}/rollout", codecs)
    assert (rollout.ending, Overrun.broken) == (Ending.ANSWERED, 3)


def test_a_service_plays_as_the_sdk_does(codecs):
    (own,) = play_all(SDK_AGENT, ScriptedPolicy(calls_tool(ADD), codecs["qwen3"]))
    with service() as address:
        rollout = played(f"{address}/rollout", codecs)
    assert (rollout.answer, rollout.rows) == (own.answer, own.rows)


def test_a_service_that_fails_leaves_the_rollout_unscored(codecs):
    with service() as address:
        rollout = played(f"{address}/broken", codecs)
    assert rollout.ending is Ending.INFRASTRUCTURE_ERROR
    assert "status 500" in rollout.detail


class Failing(Service):
    """Reports that its agent failed, as a reused process does."""

    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"error": "no such table"}')


def test_an_agent_that_its_service_reports_as_failed_is_not_scored(codecs):
    with service(Failing) as url:
        rollout = played(f"{url}/rollout", codecs)
    assert not rollout.ending.is_judged
    assert "the agent failed: no such table" in rollout.detail


def test_a_service_that_is_not_there_is_named(codecs):
    rollout = played("http://127.0.0.1:9/rollout", codecs)
    assert rollout.ending is Ending.NO_MODEL_CALL
    assert "http://127.0.0.1:9/rollout" in rollout.detail
