"""The environment that the kill matrix trains: a service judges the answers.

The task is so small that the rollouts of a random model differ within a group. If the service were
lost, the weights would differ.
"""

import socket
import string
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from agents import Agent

from sparring import Environment, Service, Suite, failed, measure, passed
from sparring.policies.families import family_named


@dataclass
class World:
    judge: str


@measure
def even(rollout):
    """Passes if, according to the service, the answer has an even number of characters."""
    host, _, port = rollout.world.judge.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(f"{len(rollout.answer)}\n".encode())
        verdict = connection.makefile().readline().strip()
    return passed("even") if verdict == "even" else failed("odd")


class JudgedTalk(Environment):
    """Answers questions; a service judges the answers."""

    name = "judged_talk"
    measures = (even,)
    # A random model ends its turns only if many tokens are stop tokens.
    family = replace(family_named("qwen3"), also_stops=tuple(string.ascii_lowercase[:6]))
    services = (
        Service("judge", [sys.executable, str(Path(__file__).with_name("judge.py")), "{port}"]),
    )

    def agent(self):
        return Agent(name="talker", instructions="Talk.")

    def world(self, case):
        return World(self.address("judge"))

    def suite(self):
        return Suite.from_records(
            [
                {"input": f"question {n}", "split": "validation" if n % 4 == 3 else "training"}
                for n in range(96)
            ]
        )
