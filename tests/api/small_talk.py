"""An environment for the Python entry points: a talker with enough cases to be proved."""

from __future__ import annotations

from typing import Any, ClassVar
from xml.etree import ElementTree

from agents import Agent

from sparring import Environment, Suite
from tests.training import TALKATIVE, even


class SmallTalk(Environment):
    """Talks."""

    name = "small_talk"
    measures = (even,)
    family = TALKATIVE
    settings: ClassVar = {"max_completion_length": 48, "num_generations": 4, "learning_rate": 1e-3}

    def agent(self) -> Agent[Any]:
        return Agent(name="talker", instructions="Talk.")

    def suite(self) -> Suite:
        splits = ["training"] * 24 + ["validation"] * 20 + ["held-out"] * 20
        return Suite.from_records(
            [{"input": f"question {n}", "split": split} for n, split in enumerate(splits)]
        )


def shown_by(result: Any) -> ElementTree.Element:
    """The HTML of a result, parsed, after its text was found to be short."""
    assert repr(result) == str(result) or repr(result).endswith("…")
    assert len(repr(result)) <= 400
    return ElementTree.fromstring(f"<div>{result._repr_html_()}</div>")
