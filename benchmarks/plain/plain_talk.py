"""The task of bare_train.py for Sparring: an agent without tools, with the same questions."""

from dataclasses import replace

from agents import Agent

from sparring import Environment, Suite, failed, measure, passed
from sparring.policies.families import family_named


@measure
def odd(rollout):
    """Passes if the answer has an odd number of characters."""
    return passed("odd") if len(rollout.answer) % 2 else failed("even")


class PlainTalk(Environment):
    """Answers questions about numbers."""

    name = "plain_talk"
    measures = (odd,)
    settings = {
        "max_steps": 2,
        "num_generations": 4,
        "cases_per_batch": 2,
        "gradient_accumulation_steps": 1,
        "max_completion_length": 32,
        "validation_cases": 0,
        "replacement_groups": 0,
        "mask_truncated_completions": False,
        "lora": True,
        "guards": {"truncated": "off", "dead_groups": "off"},
    }

    def agent(self):
        return Agent(name="talker", instructions="You are a helpful assistant. Answer briefly.")

    def suite(self):
        return Suite.from_records(
            [{"input": f"Tell me about number {n}.", "split": "training"} for n in range(100, 140)]
        )


class PlainTiny(PlainTalk):
    """The same for the tiny model, which uses the chat format of another family."""

    name = "plain_tiny"
    family = replace(family_named("qwen3"), also_stops=())
