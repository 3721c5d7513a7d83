"""An environment over a file of cases, whose measure waits until somebody has looked."""

import time
from pathlib import Path

from agents import Agent

from sparring import Environment, Suite, measure, passed
from sparring.contracts.verdicts import failed
from tests.training import TALKATIVE


@measure
def after_a_look(rollout):
    place = Path(rollout.case.fields["place"])
    (place / "playing").touch()
    while not (place / "looked").exists():
        time.sleep(0.05)
    return passed("even") if len(rollout.answer) % 2 else failed("odd")


class Secretive(Environment):
    """Cases from a file."""

    name = "secretive"
    measures = (after_a_look,)
    family = TALKATIVE

    class Config(Environment.Config):
        cases: str
        column: str = "input"

    def agent(self):
        return Agent(name="talker", instructions="Talk.")

    def suite(self):
        print(Path(self.config.cases).read_text())
        return Suite.from_jsonl(self.config.cases, input=self.config.column)
