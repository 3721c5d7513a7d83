"""Real frameworks, each in an environment of its own, unmodified but for the base URL.

`make frameworks` installs them; `pytest -m frameworks` plays them and writes the table in the docs.
"""

import json
import os
import shutil
import subprocess
from array import array
from dataclasses import dataclass
from pathlib import Path

import pytest
from agents import Agent, FunctionTool

from sparring.contracts.rollouts import Ending, TokenKind
from sparring.gateway.agents import GatewayAgent
from sparring.gateway.processes import ReusedProgram
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.gateway.frameworks.cases import SCHEMA, SYSTEM, add, multiply
from tests.gateway.playing import ADD, calls_tool, play_all, plays

FOLDER = Path(__file__).parent / "frameworks"
ROOT = Path(__file__).resolve().parents[2]
INSTALLED = Path(os.environ.get("SPARRING_FRAMEWORKS", ROOT / ".venv-frameworks"))
TABLE = FOLDER / "table.md"


@dataclass(frozen=True)
class Framework:
    """One framework: its script, its environment, its package, and how its messages or schemas
    differ from those of the agent on the SDK. A client may force its calls."""

    title: str
    script: str
    place: str
    package: str
    difference: str = ""
    is_forced: bool = False

    def __str__(self):
        return Path(self.script).stem

    def program(self):
        if self.script.endswith(".mjs"):
            for file in FOLDER.glob("*.mjs"):  # Node looks for packages beside the script
                shutil.copy(file, INSTALLED / self.place)
            return ReusedProgram(["node", self.script], INSTALLED / self.place)
        return ReusedProgram(["python", self.script], FOLDER, INSTALLED / self.place)

    def version(self):
        if self.script.endswith(".mjs"):
            file = INSTALLED / self.place / "node_modules" / self.package / "package.json"
            return json.loads(file.read_text())["version"]
        code = f"import importlib.metadata as m; print(m.version({self.package!r}))"
        python = INSTALLED / self.place / "bin" / "python"
        return subprocess.check_output([python, "-c", code], text=True).strip()


FRAMEWORKS = [
    Framework("OpenAI client", "openai_agent.py", "langgraph", "openai"),
    Framework("LangGraph", "langgraph_agent.py", "langgraph", "langgraph"),
    Framework("pydantic-ai", "pydantic_ai_agent.py", "pydantic_ai", "pydantic-ai-slim"),
    Framework("Anthropic client", "anthropic_agent.py", "anthropic", "anthropic"),
    Framework(
        "smolagents",
        "smolagents_agent.py",
        "smolagents",
        "smolagents",
        difference="it rewrites its history",
        is_forced=True,
    ),
    Framework(
        "CrewAI",
        "crewai_agent.py",
        "crewai",
        "crewai",
        difference="it adds its own instructions",
    ),
    Framework("OpenAI client for Node", "openai_node.mjs", "node", "openai"),
    Framework("Vercel AI SDK", "ai_sdk.mjs", "node", "ai"),
]


class Recording(ScriptedPolicy):
    """Keeps the prompts and samples of its calls."""

    def __init__(self, script, codec):
        super().__init__(script, codec)
        self.calls = []

    async def sample(self, request):
        sample = await super().sample(request)
        self.calls.append((array("i", request.prompt), sample))
        return sample


def sdk_agent():
    """The same agent on the agents SDK."""
    tools = [
        FunctionTool(each.__name__, each.__doc__, SCHEMA, invoke(each)) for each in (add, multiply)
    ]
    return Agent(name="main", instructions=SYSTEM, tools=tools)


def invoke(function):
    async def run(_, arguments):
        return function(**json.loads(arguments))

    return run


def forced(calls):
    """A script for a client that forces calls, in the format of Qwen3: the opening of a call stands
    in the prompt already."""
    waiting = iter(calls)

    def script(_):
        name, arguments = next(waiting)
        return f'{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'

    return script


def check_rows(rows, calls):
    """Every sampled token is in one row, after the prompt that it was sampled from."""
    samples = {prompt.tobytes(): sample for prompt, sample in calls}
    for row in rows:
        place = 0
        for span in row.spans:
            if span.kind is TokenKind.SAMPLED:
                sample = samples.pop(row.ids[:place].tobytes())
                assert row.ids[place : place + span.length] == sample.ids
            place += span.length
    assert not samples


def test_the_docs_show_the_table_of_the_last_run():
    assert TABLE.read_text() in (ROOT / "docs" / "gateway.md").read_text()


@pytest.mark.frameworks
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=str)
def test_a_framework_is_played_with_exact_rows(codecs, framework):
    if not (INSTALLED / framework.place).exists():
        pytest.skip("make frameworks")
    calls = [ADD, ("multiply", {"a": 2, "b": 7})]
    script = (
        forced([*calls, ("final_answer", {"answer": "It is 5."})])
        if framework.is_forced
        else calls_tool(*calls)
    )
    policy = Recording(script, codecs["qwen3"])
    agent = GatewayAgent("tested", framework.program())
    (rollout,) = play_all(agent, policy, plays(1), rollout_timeout=120.0)
    assert rollout.ending is Ending.ANSWERED, rollout.detail
    assert rollout.answer == "It is 5."
    assert [call.tool for call in rollout.tool_calls][:2] == ["add", "multiply"]
    check_rows(rollout.rows, policy.calls)
    if not framework.difference:
        (own,) = play_all(sdk_agent(), ScriptedPolicy(script, codecs["qwen3"]))
        assert policy.codec.decode(rollout.rows[0].ids) == policy.codec.decode(own.rows[0].ids)
        assert rollout.rows == own.rows
        assert rollout.messages == own.messages
    note(framework, rows=len(rollout.rows))


def note(framework, rows):
    """Write the framework's line of the table in the docs."""
    lines = dict(line.split("|", 2)[1:] for line in TABLE.read_text().splitlines()[2:])
    same = f"no: {framework.difference}" if framework.difference else "yes"
    lines[f" {framework.title} "] = f" {framework.version()} | {rows} | {same} |"
    head = ["| agent | version | rows | same tokens as on the SDK |", "|---|---|---|---|"]
    order = [f" {each.title} " for each in FRAMEWORKS if f" {each.title} " in lines]
    TABLE.write_text("\n".join([*head, *(f"|{name}|{lines[name]}" for name in order), ""]))
