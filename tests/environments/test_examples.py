"""Worked examples: their results are what the tools return, and their items are always the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, RunContextWrapper, function_tool

from sparring import Environment, Suite, call, tool, worked_example
from sparring.contracts.errors import InvalidInput
from sparring.contracts.rollouts import Message, RequestedCall
from sparring.environments.examples import input_items
from sparring.environments.task import Task, read_task
from sparring.measures import MeasureSet, exact
from sparring.player.conversation import to_messages


@function_tool
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


@function_tool
def explode(a: int) -> int:
    """Fail."""
    raise KeyError(f"no {a}")


@function_tool
async def mine(context: RunContextWrapper[Any], name: str) -> str:
    """Read the context."""
    return str(context.context[name])


class Counter:
    """A world that counts."""

    def __init__(self) -> None:
        self.count = 0

    @tool
    def up(self, by: int) -> str:
        """Count up."""
        self.count += by
        return f"at {self.count}"


def test_a_result_is_what_the_tool_returns() -> None:
    made = worked_example("What is 2 + 3?", call(add, a=2, b=3), answer="2 + 3 = 5")
    assert [(each.tool, each.arguments, each.result) for each in made.calls] == [
        ("add", '{"a": 2, "b": 3}', "5")
    ]
    assert input_items([made]) == [
        {"role": "user", "content": "What is 2 + 3?"},
        {
            "type": "function_call",
            "call_id": "example_1_1",
            "name": "add",
            "arguments": '{"a": 2, "b": 3}',
        },
        {"type": "function_call_output", "call_id": "example_1_1", "output": "5"},
        {"role": "assistant", "content": "2 + 3 = 5"},
    ]


def test_methods_of_a_world_are_called_once_and_in_order() -> None:
    counter = Counter()
    made = worked_example("Count.", *(call(counter.up, by=number) for number in (1, 2)), answer="3")
    assert [each.result for each in made.calls] == ["at 1", "at 3"]
    assert input_items([made]) == input_items([made])
    assert counter.count == 3


def test_a_list_of_calls_is_one_turn_with_parallel_calls() -> None:
    made = worked_example("Both?", [call(add, a=1, b=1), call(add, a=2, b=2)], answer="2 and 4")
    messages = to_messages(input_items([made, made]))
    assert messages[1] == Message(
        "assistant",
        "",
        calls=(
            RequestedCall("example_1_1", "add", '{"a": 1, "b": 1}'),
            RequestedCall("example_1_2", "add", '{"a": 2, "b": 2}'),
        ),
    )
    assert [(each.content, each.call_id) for each in messages[2:4]] == [
        ("2", "example_1_1"),
        ("4", "example_1_2"),
    ]
    assert messages[6].calls[0].id == "example_2_1"


def test_an_example_may_have_no_call() -> None:
    made = worked_example("Hi?", answer="Hello.")
    assert [each.content for each in to_messages(input_items([made]))] == ["Hi?", "Hello."]


def test_the_tool_of_a_stated_result_is_not_called() -> None:
    stated = worked_example("?", call(explode, a=1).returning("fine"), answer="ok")
    named = worked_example("?", call("go", way="north").returning("a wall"), answer="ok")
    assert [stated.calls[0].result, named.calls[0].result] == ["fine", "a wall"]


def test_tools_are_called_inside_a_running_loop_too() -> None:
    async def make() -> str:
        return worked_example("?", call(add, a=1, b=2), answer="3").calls[0].result

    assert asyncio.run(make()) == "3"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (call(explode, a=1), r"'Q': explode\(.*failed: KeyError: 'no 1' \(test_examples.py:"),
        (call(mine, name="x"), r"needs a world or a context, state its result with call\('mine'"),
        (call("go"), r"go\({}\) has no result, because a name cannot be called"),
        (call(add, a={1}), "the arguments of add are not JSON"),
        ([], "write each as call"),
        ("add", "write each as call"),
    ],
)
def test_a_call_without_a_result_says_what_to_do(given: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        worked_example("Q", given, answer="A")


EXAMPLE = worked_example("What is 2 + 3?", call(add, a=2, b=3), answer="5")


class Sums(Environment):
    """Sums."""

    measures = (exact(),)

    class Config(Environment.Config):
        shown: int = 1

    @property
    def examples(self) -> list[Any]:
        return [EXAMPLE] * self.config.shown

    def agent(self) -> Agent[Any]:
        return Agent(name="adder", tools=[add])

    def suite(self) -> Suite:
        return suite()


class Played(Environment):
    """An agent outside the SDK."""

    examples = (EXAMPLE,)
    measures = (exact(),)

    async def play(self, case: Any, session: Any) -> str:
        return ""

    def suite(self) -> Suite:
        return suite()


def suite() -> Suite:
    return Suite.from_records([{"input": f"{n}", "expected": f"{n}"} for n in range(60)])


def test_the_examples_of_a_task_are_its_environments_or_given() -> None:
    assert Task.of_environment(Sums(shown=2)).examples == (EXAMPLE, EXAMPLE)
    assert Task.of_environment(Sums(shown=0)).opening == []
    given = read_task(Sums(shown=2), None, None, examples=[])
    assert given.examples == ()
    plain = read_task(Agent(name="a"), suite(), (exact(),), examples=[EXAMPLE])
    assert plain.opening == input_items([EXAMPLE])


def test_other_examples_are_another_agent() -> None:
    def digest(**options: Any) -> str:
        return read_task(Agent(name="a"), suite(), (exact(),), **options).digest

    assert digest(examples=[EXAMPLE]) not in (digest(), digest(examples=[EXAMPLE, EXAMPLE]))
    assert digest(examples=[]) == digest()


@pytest.mark.parametrize("examples", ["one", [{"role": "user"}], 3])
def test_what_is_no_worked_example_is_refused(examples: Any) -> None:
    with pytest.raises(InvalidInput, match="examples must be a list of worked examples, not"):
        read_task(Agent(name="a"), suite(), (exact(),), examples=examples)


def test_an_agent_that_makes_its_own_prompts_takes_no_examples() -> None:
    with pytest.raises(InvalidInput, match="Played has worked examples, but an agent behind play"):
        Task.of_environment(Played())
    with pytest.raises(InvalidInput, match="makes its own prompts; remove `examples`"):
        read_task(lambda case, session: "", suite(), (exact(),), examples=[EXAMPLE])
    assert Task(
        agent=Agent(name="a"), suite=suite(), measures=MeasureSet((), {}), examples=(EXAMPLE,)
    ).answers_shown == ["5"]
