"""Things to train in tests: a talker without tools, on the tiny model, rewarded by a coin that
depends on its words alone."""

from __future__ import annotations

import string
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents import Agent

from sparring import Suite, failed, measure, passed
from sparring.measures import MeasureSet
from sparring.policies.families import Family, family_named

if TYPE_CHECKING:
    from sparring import Trainer
    from sparring.environments.task import Task

# A random model ends its turns only if many tokens end a turn.
TALKATIVE: Family = replace(family_named("qwen3"), also_stops=tuple(string.ascii_lowercase[:6]))


def talker() -> Agent[Any]:
    return Agent(name="talker", instructions="Talk.")


@measure
def even(rollout: Any) -> Any:
    count = len(rollout.answer)
    return passed(f"{count} letters") if count % 2 == 0 else failed(f"{count} letters")


def questions(count: int = 96) -> Suite:
    """Three quarters for training, the rest for validation."""
    return Suite.from_records(
        [
            {"input": f"question {n}", "split": "validation" if n % 4 == 3 else "training"}
            for n in range(count)
        ]
    )


def talk() -> Task:
    """The talker with its questions, judged by `even`."""
    from sparring.environments.task import Task

    return Task(agent=talker(), suite=questions(), measures=MeasureSet.of([even]))


def trainer(tiny_folder: Path, runs: Path, **options: Any) -> Trainer:
    """A trainer of the talker, which plays what it is proposed; options go before these."""
    from sparring import Trainer  # its libraries take seconds, and environments import this module

    given: dict[str, Any] = {
        "model": str(tiny_folder),
        "family": TALKATIVE,
        "max_steps": 3,
        "max_completion_length": 24,
        "learning_rate": 1e-3,
        "validation_cases": 0,
        "replacement_groups": 0,
        "draw_by_difficulty": False,
        "runs": runs,
        "show_progress": False,
        **options,
    }
    agent = given.pop("agent", None) or talker()
    suite = given.pop("suite", None) or questions()
    measures = given.pop("measures", (even,))
    return Trainer(agent, suite, measures, **given)


def weights_digest(result_or_folder: Any) -> str:
    """What the weights of the last checkpoint are, bit by bit."""
    from sparring.run_folder.checkpoint_list import list_checkpoints

    folder = getattr(result_or_folder, "folder", result_or_folder)
    last = list_checkpoints(folder.checkpoints)[-1]
    files = last.manifest["files"]
    name = next(name for name in files if name.endswith(".safetensors"))
    return str(files[name]["sha256"])
