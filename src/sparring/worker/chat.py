"""`python -m sparring.worker.chat SPEC`: talk to an agent in the terminal, tool calls shown."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

from agents import Agent, ItemHelpers, MaxTurnsExceeded, Runner
from agents.items import MessageOutputItem, ToolCallItem, ToolCallOutputItem
from rich.console import Console
from rich.text import Text

from sparring.contracts.cases import Split
from sparring.contracts.errors import SparringError
from sparring.contracts.policies import Sampling, TokenPolicy
from sparring.contracts.specs import PlaySettings, PolicySpec
from sparring.cpu import share_machine
from sparring.environments.environment import Parts, read_parts
from sparring.player.player import taking_a_case
from sparring.player.policy_model import PolicyModel
from sparring.player.sdk_model import common_run_config
from sparring.player.worlds import end_world, world_tools
from sparring.policies.loading import load_policy
from sparring.proofs.null_players import examples_before, question_of
from sparring.sandbox import places
from sparring.worker.opening import opened_in_passing

_QUIT = ("/quit", "/exit", "/q", "exit", "quit")
_HELP = """Type a message; Enter alone asks the example.
/new    start over, with the next case's example
/tools  what the agent can call
/help   this
/quit   leave; exit and Ctrl-D do, too"""
_LONGEST = 200
_EXAMPLES = 16


class Conversation:
    """One agent, one world, and what has been said."""

    def __init__(self, parts: Parts, policy: TokenPolicy, play: PlaySettings) -> None:
        self._parts = parts
        self._play = play
        sampling = Sampling(play.temperature, play.max_completion_length)
        self._model = PolicyModel(policy, sampling)
        self._world: Any = None
        self._agent: Agent[Any] = parts.agent
        self._said: list[Any] = []
        self._cases = cycle(parts.suite.cases(Split.TRAINING, _EXAMPLES))
        self.example = ""

    async def begin(self) -> int:
        """Start over, in the world of the next case; returns how many turns of worked examples go
        before."""
        await end_world(self._world)
        case = next(self._cases)
        self.example = " ".join(question_of(case).split())
        self._world = await taking_a_case(self._parts.world)(case)
        tools = [*self._parts.agent.tools, *world_tools(self._world)]
        self._agent = self._parts.agent.clone(model=self._model, tools=tools)
        self._said = examples_before(case)
        return len(self._said)

    async def say(self, text: str) -> list[Any]:
        """The new items: calls, their results, and the answer."""
        result = await Runner.run(
            self._agent,
            [*self._said, {"role": "user", "content": text}],
            context=self._world,
            max_turns=self._play.tool_rounds + 1,
            run_config=common_run_config(),
        )
        self._said = list(result.to_input_list())
        return list(result.new_items)

    def tools(self) -> list[tuple[str, str]]:
        """Names and what they are for."""
        return [(each.name, getattr(each, "description", "")) for each in self._agent.tools]

    async def end(self) -> None:
        await end_world(self._world)


async def talk(conversation: Conversation, console: Console) -> None:
    examples = await conversation.begin()
    if examples:
        console.print(Text(f"{examples} turns of worked examples go before", style="dim"))
    console.print(Text("/help says what else there is", style="dim"))
    _offer(conversation, console)
    while True:
        try:
            text = (await asyncio.to_thread(_asked, console)).strip()
        except (EOFError, KeyboardInterrupt):
            break
        if text in _QUIT:
            break
        if text == "/new":
            await conversation.begin()
            _offer(conversation, console)
        elif text == "/tools":
            for name, what_for in conversation.tools():
                console.print(Text.assemble((name, "magenta"), f"  {what_for}"))
        elif text.startswith("/"):
            console.print(Text(_HELP, style="dim"))
        elif text := text or conversation.example:
            await _answer(conversation, text, console)
    await conversation.end()


def _offer(conversation: Conversation, console: Console) -> None:
    if conversation.example:
        told = conversation.example[:_LONGEST]
        console.print(Text.assemble(("for example: ", "dim"), told))


async def _answer(conversation: Conversation, text: str, console: Console) -> None:
    try:
        for item in await conversation.say(text):
            _show(item, console)
    except MaxTurnsExceeded:
        console.print(Text("(no answer within its tool rounds)", style="yellow"))
    except SparringError as error:
        console.print(Text(f"({error})", style="yellow"))


def _show(item: Any, console: Console) -> None:
    if isinstance(item, ToolCallItem):
        called = item.raw_item
        name, arguments = getattr(called, "name", "?"), getattr(called, "arguments", "")
        console.print(Text(f"  → {name}({arguments})", style="magenta"))
    elif isinstance(item, ToolCallOutputItem):
        console.print(Text(f"  {item.output}", style="cyan"))
    elif isinstance(item, MessageOutputItem):
        console.print(Text(ItemHelpers.text_message_output(item), style="green"))


def _asked(console: Console) -> str:
    if sys.stdin.isatty():
        return console.input("[bold]you[/bold] ")
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    console.print(Text(f"\n> {line.rstrip()}", style="bold"))
    return line


def main(asked: dict[str, Any]) -> int:
    console = Console()
    play = PlaySettings.model_validate(asked["play"])
    try:
        with opened_in_passing(
            asked["target"], asked["config"], is_unsandboxed=play.unsandboxed
        ) as environment:
            parts = read_parts(environment)
            with console.status("loading the model…"):
                spec = PolicySpec.model_validate(asked["policy"])
                policy = load_policy(spec, parts.agent.model, environment.family)
            if not isinstance(policy, TokenPolicy):
                raise SparringError("chat talks to weights in this process: leave out servers")
            console.print(Text.assemble((asked["about"] or policy.name, "bold")), soft_wrap=True)
            asyncio.run(talk(Conversation(parts, policy, play), console))
    except SparringError as error:
        print(f"sparring: {error}", file=sys.stderr)
        return error.exit_code
    finally:
        places.remove_all()
    return 0


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    share_machine()
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
