"""The talker of tests/training.py as an environment, for runs in processes of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents import Agent

from sparring import Environment, Suite
from tests.training import TALKATIVE, even, questions, talker

TARGET = f"{Path(__file__).resolve()}:Talker"


class Talker(Environment):
    """Talks, and is rewarded by a coin that depends on its words."""

    measures = (even,)
    family = TALKATIVE

    def agent(self) -> Agent[Any]:
        return talker()

    def suite(self) -> Suite:
        return questions()
