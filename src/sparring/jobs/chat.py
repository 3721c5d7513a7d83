"""`python -m sparring.jobs.chat REQUEST`: a chat with an agent in the terminal.

REQUEST is a JSON file. Tool calls and their results are shown. With an agent that does not use the
agents SDK, each message is a separate rollout: the agent does not see earlier messages.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

from agents import Agent, ItemHelpers, MaxTurnsExceeded, RunContextWrapper, Runner
from agents.items import MessageOutputItem, ToolCallItem, ToolCallOutputItem
from rich.console import Console
from rich.text import Text

from sparring.contracts.cases import Case, examples_before, question_of
from sparring.contracts.errors import InfrastructureError, InvalidInput, SparringError
from sparring.contracts.policies import Policy, Sampling, TokenPolicy
from sparring.contracts.rollouts import Ending, Message, RolloutKey
from sparring.contracts.specs import PlaySettings, PolicySpec
from sparring.environments.task import Task
from sparring.jobs.environment_opening import opened_without_run
from sparring.machine import share_machine
from sparring.measures import MeasureSet
from sparring.player import Play, Player
from sparring.player.external_agent import ExternalAgent
from sparring.player.mcp_servers import connected_servers, rollout_servers
from sparring.player.player import as_case_factory
from sparring.player.sdk_model import PolicyModel, common_run_config
from sparring.player.worlds import end_world, world_tools
from sparring.policies.loading import load_policy
from sparring.sandbox import workspaces
from sparring.threads import DaemonThreads

_QUIT = ("/quit", "/exit", "/q", "exit", "quit")
_HELP = """Type a message; Enter alone sends the example.
/new    start over, with the next case's example
/tools  list the agent's tools
/help   list the commands
/quit   leave the chat (also exit, Ctrl-D)"""
_EXAMPLE_CHARACTERS = 200
_ERROR_CHARACTERS = 500
_EXAMPLES = 16


class ProgramConversation:
    """Plays the agent on each typed message, which replaces the question of a case."""

    def __init__(self, task: Task, policy: Policy, play: PlaySettings) -> None:
        self._player = Player(
            task.agent,
            policy,
            limits=play.limits(),
            temperature=play.temperature,
            context=task.context,
        )
        self._cases = cycle(task.suite.cases(task.suite.first_split(), _EXAMPLES))
        self._case: Case | None = None
        self._seed = secrets.randbits(31)
        self._messages = 0
        self.example = ""

    async def begin(self) -> int:
        """Take the next case, and return the number of its worked-example items."""
        self._case = next(self._cases)
        self.example = " ".join(question_of(self._case).split())
        return len(examples_before(self._case))

    async def say(self, text: str) -> list[Message]:
        """Play a message and return the messages after it: tool calls, tool results, answer."""
        assert self._case is not None
        before = examples_before(self._case)  # an agent outside the SDK has no worked examples
        given = [*before, {"role": "user", "content": text}] if before else text
        key = RolloutKey(self._seed, 0, self._case.id, self._messages)
        self._messages += 1
        rollout = await self._player.play_one(Play(key, replace(self._case, input=given)))
        await end_world(rollout.world)
        if rollout.ending in (Ending.INFRASTRUCTURE_ERROR, Ending.NO_MODEL_CALL):
            raise InfrastructureError(rollout.detail)
        users = [place for place, each in enumerate(rollout.messages) if each.role == "user"]
        typed = [place for place in users if rollout.messages[place].content == text] or users
        shown = list(rollout.messages[typed[-1] + 1 :]) if typed else list(rollout.messages)
        answer = Message("assistant", rollout.answer)
        is_shown = bool(shown) and shown[-1].content == rollout.answer
        return shown if is_shown else [*shown, answer]

    async def tools(self) -> list[tuple[str, str]]:
        """Return an empty list: Sparring does not know the tools of an agent outside the SDK."""
        return []

    async def end(self) -> None:
        """Do nothing: `say` has already ended each world."""


class Conversation:
    """A conversation with one agent in one world, with its history."""

    def __init__(self, task: Task, policy: TokenPolicy, play: PlaySettings) -> None:
        assert isinstance(task.agent, Agent)
        self._task = task
        self._play = play
        sampling = Sampling(play.temperature, play.max_completion_length)
        self._model = PolicyModel(policy, sampling)
        self._world: Any = None
        self._servers = AsyncExitStack()
        self._agent = self._given = task.agent
        self._history: list[Any] = []
        self._is_open = False
        self._cases = cycle(task.suite.cases(task.suite.first_split(), _EXAMPLES))
        self.example = ""

    async def begin(self) -> int:
        """Start over in the world of the next case. Return the number of its worked-example items,
        which the conversation starts with."""
        await self.end()
        case = next(self._cases)
        self.example, self._history = " ".join(question_of(case).split()), []
        self._is_open = False
        self._world = await as_case_factory(self._task.context)(case)
        await self._servers.enter_async_context(connected_servers(self._given))
        servers = await self._servers.enter_async_context(rollout_servers(self._world))
        mcp_servers = [*self._given.mcp_servers, *servers]
        self._agent = self._given.clone(model=self._model, mcp_servers=mcp_servers)
        self._history = [*self._task.opening, *examples_before(case)]
        self._is_open = True
        return len(self._history)

    async def say(self, text: str) -> list[Any]:
        """Send a message and return the new items: tool calls, their results, the answer."""
        if not self._is_open:
            raise InvalidInput("the conversation could not begin; /new tries the next case")
        result = await Runner.run(
            self._agent,
            [*self._history, {"role": "user", "content": text}],
            context=self._world,
            max_turns=self._play.max_turns,
            run_config=common_run_config(),
        )
        self._history = list(result.to_input_list())
        if result.last_agent.name != self._agent.name:  # handed off
            self._agent = result.last_agent.clone(model=self._model)
        return list(result.new_items)

    async def tools(self) -> list[tuple[str, str]]:
        """Return the name and description of each tool."""
        given = await self._agent.get_all_tools(RunContextWrapper(self._world))
        tools = [*given, *world_tools(self._world)]
        return [(tool.name, getattr(tool, "description", "")) for tool in tools]

    async def end(self) -> None:
        """Disconnect the MCP servers, and end the world of the conversation."""
        await self._servers.aclose()
        await end_world(self._world)
        self._world = None


async def talk(conversation: Conversation | ProgramConversation, console: Console) -> None:
    """Read messages and commands until the user leaves."""
    try:
        await _converse(conversation, console)
    finally:
        await conversation.end()


async def _converse(conversation: Conversation | ProgramConversation, console: Console) -> None:
    reader = DaemonThreads(1)  # Ctrl-C does not wait for a line
    loop = asyncio.get_running_loop()
    examples = await conversation.begin()
    if examples:
        console.print(Text(f"starts with {examples} items of worked examples", style="dim"))
    console.print(Text("/help lists the commands", style="dim"))
    _offer(conversation, console)
    while True:
        try:
            text = (await loop.run_in_executor(reader, _read_line, console)).strip()
        except EOFError:
            break
        if text in _QUIT:
            break
        with _errors_shown(console):
            await _react(conversation, text, console)


async def _react(
    conversation: Conversation | ProgramConversation, text: str, console: Console
) -> None:
    """Carry out a command, or show what the agent does with a message."""
    if text == "/new":
        await conversation.begin()
        _offer(conversation, console)
    elif text == "/tools":
        for name, description in await conversation.tools():
            console.print(Text.assemble((name, "magenta"), f"  {description}"))
    elif text.startswith("/"):
        console.print(Text(_HELP, style="dim"))
    elif text := text or conversation.example:
        for item in await conversation.say(text):
            _show(item, console)


def _offer(conversation: Conversation | ProgramConversation, console: Console) -> None:
    if conversation.example:
        example = conversation.example[:_EXAMPLE_CHARACTERS]
        console.print(Text.assemble(("for example: ", "dim"), example))


@contextmanager
def _errors_shown(console: Console) -> Iterator[None]:
    """Show an error instead of raising it, so that the chat continues."""
    try:
        yield
    except MaxTurnsExceeded:
        console.print(Text("(no answer within the limit of tool rounds)", style="yellow"))
    except SparringError as error:
        console.print(Text(f"({error})", style="yellow"))
    except Exception as error:  # a guardrail, no memory, or the user's own code
        text = f"({type(error).__name__}: {str(error)[:_ERROR_CHARACTERS]})"
        console.print(Text(text, style="yellow"))


def _show(item: Any, console: Console) -> None:
    if isinstance(item, Message):
        for each in item.calls:
            console.print(Text(f"  → {each.tool}({each.arguments})", style="magenta"))
        if item.content or not item.calls:
            shown = f"  {item.content}" if item.role == "tool" else item.content
            console.print(Text(shown, style="cyan" if item.role == "tool" else "green"))
    elif isinstance(item, ToolCallItem):
        call = item.raw_item
        name, arguments = getattr(call, "name", "?"), getattr(call, "arguments", "")
        console.print(Text(f"  → {name}({arguments})", style="magenta"))
    elif isinstance(item, ToolCallOutputItem):
        console.print(Text(f"  {item.output}", style="cyan"))
    elif isinstance(item, MessageOutputItem):
        console.print(Text(ItemHelpers.text_message_output(item), style="green"))


def _read_line(console: Console) -> str:
    if sys.stdin.isatty():
        return console.input("[bold]you[/bold] ")
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    console.print(Text(f"\n> {line.rstrip()}", style="bold"))
    return line


def main(request: dict[str, Any]) -> int:
    """Open the environment, load the model and chat; return the exit code."""
    console = Console()
    play = PlaySettings.model_validate(request["play"])
    try:
        with opened_without_run(
            request["target"], request["config"], is_unsandboxed=play.unsandboxed
        ) as environment:
            task = Task.of_environment(environment, measures=MeasureSet((), {}))
            with console.status("loading the model…"):
                spec = PolicySpec.model_validate(request["policy"])
                policy = load_policy(spec, task.agent.model, task.family)
            if not isinstance(policy, TokenPolicy):
                raise SparringError("chat needs weights in this process: pass no endpoint")
            console.print(Text.assemble((request["about"] or policy.name, "bold")), soft_wrap=True)
            is_program = isinstance(task.agent, ExternalAgent)
            conversation = ProgramConversation if is_program else Conversation
            asyncio.run(talk(conversation(task, policy, play), console))
    except SparringError as error:
        print(f"sparring: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        console.print()
        return 130
    finally:
        workspaces.remove_all()
    return 0


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    share_machine()
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
