"""An environment that breaks in the ways that its config says; for the tests of faults."""

import os
import signal
import time
from pathlib import Path

from agents import Agent, function_tool
from examples.bell.bell import Bell, knock

from sparring import Environment
from tests.training import TALKATIVE, even, questions


@function_tool
def ring() -> str:
    """Ring the bell."""
    time.sleep(10_000)
    return "never"


class DeafDoor(Environment):
    """The bell's task, with a bell that never stops ringing."""

    name = "deaf_door"
    measures = ("length",)

    def agent(self):
        return Agent(name="porter", instructions="Let them in.", tools=[ring, knock])

    def suite(self):
        return Bell().suite()


class Faulty(Environment):
    """Talks, and breaks."""

    name = "faulty"
    measures = (even,)
    family = TALKATIVE

    class Config(Environment.Config):
        fault: str = ""
        once: str = ""

    def agent(self):
        return Agent(name="talker", instructions="Talk.")

    def suite(self):
        return questions()

    def world(self, case):
        """At the twentieth rollout: by then, the first checkpoint is there."""
        self.played = getattr(self, "played", 0) + 1
        if self.config.fault and self.played == 40 and self._is_first_time():
            FAULTS[self.config.fault]()
        return

    def _is_first_time(self):
        if not self.config.once:
            return True
        try:
            Path(self.config.once).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def _raise() -> None:
    raise SystemError("the infrastructure is broken")


def _eat_memory() -> None:
    eaten = []
    while True:
        eaten.append(bytearray(os.urandom(1 << 20)) * 16)


FAULTS = {
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "sleeping": lambda: time.sleep(10_000),
    "exit": lambda: os._exit(7),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "memory": _eat_memory,
}
