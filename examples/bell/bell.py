"""The bell: a task so small that a model of random weights can learn it, once it is shown how.

The demonstrations knock as often as they ring. Both get a guest in; ringing is better.
"""

from pathlib import Path

from agents import Agent, function_tool

from sparring import Environment, Suite, failed, measure, scored

DEMONSTRATIONS = Path(__file__).with_name("demonstrations.jsonl")
GREETINGS = ("hello", "hi there", "good day", "anybody home?", "it is me", "may I come in?")
GUESTS = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal", "Ida", "Jo", "Kim", "Leo")
WORTH = {"ring": 1.0, "knock": 0.5}


@function_tool
def ring() -> str:
    """Ring the bell."""
    return "ding dong, come in"


@function_tool
def knock() -> str:
    """Knock at the door."""
    return "who is there"


@measure(threshold=0.5)
def got_in(rollout):
    """One of the two tools was called, once, and the answer is done."""
    calls = [call.tool for call in rollout.tool_calls]
    if len(calls) != 1 or calls[0] not in WORTH:
        return failed(f"{len(calls)} calls, where one was needed")
    if rollout.answer.strip() != "done":
        return failed(f"answered {rollout.answer.strip()!r}, not done")
    return scored(WORTH[calls[0]], f"{calls[0]} is worth {WORTH[calls[0]]:g}")


class Bell(Environment):
    """Gets guests in."""

    measures = (got_in,)

    def agent(self):
        return Agent(name="porter", instructions="Let them in.", tools=[ring, knock])

    def suite(self):
        return Suite.from_records(
            [
                {"input": f"{greeting} {guest}{end}"}
                for greeting in GREETINGS
                for guest in GUESTS
                for end in ("", "!", "...", ", today")
            ]
        )
