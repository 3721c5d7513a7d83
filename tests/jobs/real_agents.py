"""Agents as people ship them, small enough for the tiny model, and their training.

    python -m tests.jobs.real_agents KIND MODEL RUNS RUN

trains the agent of this kind for four steps. A run of that name that was killed is resumed.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents import Agent, RunConfig, Runner, function_tool
from agents.mcp import MCPServerStdio
from agents.run import ModelInputData

from sparring import Suite, Trainer, failed, measure, scored
from tests.training import trainer

GUESTS = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal", "Ida", "Jo", "Kim", "Leo")
GREETINGS = ("hello", "hi", "good day", "it is me")
WORTH = {"ring": 1.0, "knock": 0.5}


@function_tool
def ring() -> str:
    """Ring the bell."""
    return "ding dong"


@function_tool
def knock() -> str:
    """Knock at the door."""
    return "who is there"


@measure(threshold=0.5)
def got_in(rollout: Any) -> Any:
    """Ringing is worth more than knocking; both must be followed by the word done."""
    worth = [WORTH[call.tool] for call in rollout.tool_calls if call.tool in WORTH]
    if len(worth) != 1 or rollout.answer.strip() != "done":
        return failed(f"{len(worth)} of ring and knock, answered {rollout.answer[:20]!r}")
    return scored(worth[0], "got in")


def suite() -> Suite:
    return Suite.from_records(
        [{"input": f"{greeting} {guest}"} for greeting in GREETINGS for guest in GUESTS],
        shares={"training": 1.0},
    )


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "tool_calls": [{"function": {"name": tool, "arguments": arguments}}],
    }


def text(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def handoffs() -> tuple[Agent[Any], Callable[[str], list[Any]], Any]:
    """An agent that hands off to one of two specialists."""
    specialists = [
        Agent(name="ringer", instructions="Ring.", tools=[ring]),
        Agent(name="knocker", instructions="Knock.", tools=[knock]),
    ]
    writer = Agent(name="desk", instructions="Hand off.", handoffs=list(specialists))
    return writer, lambda tool: [call(f"transfer_to_{tool}er"), call(tool), text("done")], None


def nested() -> tuple[Agent[Any], Callable[[str], list[Any]], Any]:
    """An agent whose only tool is another agent."""
    porter = Agent(name="porter", instructions="Ring or knock.", tools=[ring, knock])
    outer = Agent(
        name="outer", instructions="Ask.", tools=[porter.as_tool("porter", "The porter.")]
    )
    return (
        outer,
        lambda tool: [call("porter", input="go"), call(tool), text("ok"), text("done")],
        None,
    )


def clock() -> tuple[Agent[Any], Callable[[str], list[Any]], Any]:
    """Instructions that change with every turn."""

    def instructions(context: Any, agent: Any) -> str:
        context.context["turn"] = context.context.get("turn", 0) + 1
        return f"It is {context.context['turn']}."

    agent = Agent(name="clock", instructions=instructions, tools=[ring, knock])
    return agent, lambda tool: [call(tool), text("done")], None


def compacted() -> tuple[Agent[Any], Callable[[str], list[Any]], Any]:
    """A nested run whose filter keeps only the last items of its history."""

    def shorten(data: Any) -> ModelInputData:
        kept = data.model_data.input[-2:]
        return ModelInputData(input=kept, instructions=data.model_data.instructions)

    @function_tool
    async def porter() -> str:
        """The porter."""
        config = RunConfig(call_model_input_filter=shorten)
        return str((await Runner.run(inner, "go", run_config=config)).final_output)

    inner = Agent(name="inner", instructions="Ring or knock.", tools=[ring, knock])
    outer = Agent(name="outer", instructions="Ask.", tools=[porter])
    return outer, lambda tool: [call("porter"), call(tool), text("ok"), text("done")], None


def user() -> tuple[Agent[Any], Callable[[str], list[Any]], Any]:
    """A user who answers once."""

    async def answer(case: Any, world: Any, conversation: Any) -> str | None:
        return "yes" if conversation[-1].content == "sure?" else None

    agent = Agent(name="polite", instructions="Ask first.", tools=[ring, knock])
    return agent, lambda tool: [text("sure?"), call(tool), text("done")], answer


def mcp() -> tuple[Agent[Any], Callable[[str], list[Any]], Any]:
    """An agent whose tools are those of an MCP server over stdio."""
    params: Any = {"command": sys.executable, "args": ["-m", "tests.jobs.porter_server"]}
    server = MCPServerStdio(params, name="porter", client_session_timeout_seconds=60)
    agent = Agent(name="porter", instructions="Ring or knock.", mcp_servers=[server])
    return agent, lambda tool: [call(tool), text("done")], None


KINDS = {each.__name__: each for each in (handoffs, nested, clock, compacted, user, mcp)}


def demonstrations(folder: Path, turns: Callable[[str], list[Any]]) -> Path:
    """As many that ring as that knock."""
    path = folder / "demonstrations.jsonl"
    tools = itertools.cycle(WORTH)
    lines = [
        json.dumps({"messages": [{"role": "user", "content": f"{greeting} {guest}"}, *turns(tool)]})
        for (greeting, guest), tool in zip(
            itertools.product(GREETINGS, GUESTS), tools, strict=False
        )
    ]
    path.write_text("\n".join(lines))
    return path


def training(kind: str, model: Path, runs: Path, run: str, **options: Any) -> Trainer:
    agent, turns, answers = KINDS[kind]()
    given: dict[str, Any] = {
        "agent": agent, "suite": suite(), "measures": (got_in,), "family": None, "user": answers,
        "context": dict, "run": run, "max_steps": 4, "save_steps": 1, "learning_rate": 3e-4,
        "num_generations": 4, "cases_per_batch": 2, "gradient_accumulation_steps": 2,
        "max_completion_length": 240, "max_turns": 4, "mask_truncated_completions": False,
        "guards": {"dead_groups": "warn", "no_tool_call": "warn"}, **options,
    }  # fmt: skip
    if "warm_start" in given:
        path = demonstrations(runs, turns)
        given["warm_start"] = {"source": str(path), **given["warm_start"]}
    return trainer(model, runs, **given)


def warmed(kind: str, tiny: Path, runs: Path) -> Path:
    """A model that has seen demonstrations of this agent."""
    warm = {"num_train_epochs": 30, "learning_rate": 3e-3}
    made = training(kind, tiny, runs, "warm", warm_start=warm, max_steps=1, learning_rate=1e-12)
    return made.train().folder.checkpoints / "step-0"


if __name__ == "__main__":
    kind, model, runs, run = sys.argv[1:]
    training(kind, Path(model), Path(runs), run).train()
