"""An environment for tests: tools of random duration, measures of every kind."""

import random
import time

from agents import Agent, function_tool

from sparring import Environment, Suite, failed, measure, passed


@function_tool
def wait(text: str = "") -> str:
    """Take a random time."""
    time.sleep(random.random() * 0.02)
    return text


@measure
def is_long(rollout):
    words = len(rollout.answer.split())
    return passed(f"{words} words") if words > 6 else failed(f"only {words} words")


class Waiting(Environment):
    """Says things, sometimes after a tool."""

    name = "waiting"
    measures = (is_long, "length")

    def agent(self):
        return Agent(name="waiter", instructions="Wait.", tools=[wait])

    def suite(self):
        return Suite.from_records(
            [{"input": f"question {n}", "split": "validation"} for n in range(48)]
        )
