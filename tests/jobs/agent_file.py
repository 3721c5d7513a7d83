"""An environment for tests: tools of random duration, measures of every kind.

The tiny model says nothing sensible, so its words are read as tool calls by a format of the
file's own: real sampling, real tools, several turns.
"""

import json
import random
import string
import time
from dataclasses import replace

from agents import Agent, function_tool

from sparring import Environment, Suite, failed, measure, passed
from sparring.contracts.policies import ParsedCall, Reply
from sparring.policies.families import family_named


class EveryOther:
    """Reads a text of even length as a call of the tool."""

    def parse(self, text, tools=()):
        if len(text) % 2:
            return Reply(text)
        return Reply("", calls=(ParsedCall("wait", json.dumps({"text": text[:9]})),))


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
    family = replace(
        family_named("qwen3"),
        tool_calls=EveryOther(),
        also_stops=tuple(string.ascii_letters),  # so that a random model ends its turns
    )

    def agent(self):
        return Agent(name="waiter", instructions="Wait.", tools=[wait])

    def suite(self):
        return Suite.from_records(
            [{"input": f"question {n}", "split": "validation"} for n in range(48)]
        )
