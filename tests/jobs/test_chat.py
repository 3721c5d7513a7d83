"""A chat shows tool calls, keeps its history until `/new`, and survives what an agent does."""

from __future__ import annotations

import asyncio
import io
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, ModelBehaviorError, function_tool
from agents.mcp import MCPServer, MCPServerStdio
from mcp.types import Tool as McpTool
from rich.console import Console

from sparring import call as worked_call
from sparring import worked_example
from sparring.contracts.cases import Case
from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import SampleRequest
from sparring.contracts.specs import PlaySettings
from sparring.environments.examples import WorkedExample
from sparring.environments.task import Task
from sparring.jobs.chat import Conversation, ProgramConversation, main, talk
from sparring.measures import MeasureSet
from sparring.policies.codec import ChatCodec
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.suites import Suite
from tests.gateway.playing import ADD, calls_tool, gateway_agent, plain_play
from tests.rollouts import call

EXAMPLE = [
    {"role": "user", "content": "What is 1 + 1?"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "What is\n2 + 2?"},
]
TALK = """
from agents import Agent

from sparring import Environment, Suite


class Talk(Environment):
    measures = ("length",)

    def agent(self):
        return Agent(name="talker")

    def suite(self):
        return Suite.from_records([{"input": f"question {n}"} for n in range(60)])
"""


def conversation(function, codec):
    suite = Suite.from_records([{"input": f"What is {number} + 3?"} for number in range(60)])
    task = Task(agent=gateway_agent(function), suite=suite, measures=MeasureSet((), {}))
    policy = ScriptedPolicy(calls_tool(ADD), codec)
    return ProgramConversation(task, policy, PlaySettings())


def test_calls_results_and_the_answer_are_shown(codecs, monkeypatch):
    lines = iter(["What is 2 + 3?\n", "/quit\n"])
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(lines)))
    out = io.StringIO()
    asyncio.run(talk(conversation(plain_play(), codecs["qwen3"]), Console(file=out, width=200)))
    shown = out.getvalue()
    assert '→ add({"a": 2, "b": 3})' in shown
    assert "It is 5." in shown


def test_an_agent_that_makes_no_call_says_why(codecs):
    async def play(case, session):
        return "5"

    async def say():
        chat = conversation(play, codecs["qwen3"])
        await chat.begin()
        await chat.say("hello")

    with pytest.raises(InfrastructureError, match="without a model call"):
        asyncio.run(say())


@function_tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"the sum is {a + b}"


class World:
    """Says when it has ended."""

    def __init__(self, case: Case, ended: list[str]) -> None:
        self._case = case
        self._ended = ended

    def after_rollout(self) -> None:
        self._ended.append(self._case.id)


class Chat:
    """A conversation with a scripted model, and what the terminal shows of it."""

    def __init__(
        self,
        codec: ChatCodec,
        reply: Callable[[str], str],
        servers: Sequence[MCPServer] = (),
        examples: tuple[WorkedExample, ...] = (),
    ) -> None:
        self._examples = examples
        self.ended: list[str] = []
        records: list[dict[str, Any]] = [
            {"id": "first", "input": "What is 3 + 4?", "split": "training"},
            {"id": "second", "input": EXAMPLE, "split": "training"},
        ]
        self.suite = Suite.from_records(records, id="id", minimum_cases=1)
        self._servers = list(servers)
        self._codec = codec
        self._reply = reply

    def _script(self, request: SampleRequest) -> str:
        return self._reply(self._codec.tokenizer.decode(request.prompt))

    def shown(self, monkeypatch: pytest.MonkeyPatch, *lines: str) -> str:
        """What is printed when these lines are typed, and then nothing more."""
        task = Task(
            agent=Agent(name="adder", tools=[add], mcp_servers=self._servers),
            suite=self.suite,
            measures=MeasureSet((), {}),
            context=lambda case: World(case, self.ended),
            examples=self._examples,
        )
        policy = ScriptedPolicy(self._script, self._codec)
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        out = io.StringIO()
        play = PlaySettings(max_turns=3)
        asyncio.run(talk(Conversation(task, policy, play), Console(file=out, width=200)))
        return out.getvalue()


def adds_once(prompt: str) -> str:
    """Calls the tool, then answers."""
    return "I see." if "<tool_response>" in prompt else call("add", a=3, b=4)


def test_a_tool_call_its_result_and_the_answer_are_shown_in_order(
    codecs: dict[str, ChatCodec], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Chat(codecs["qwen3"], adds_once).shown(monkeypatch, "add, please")
    places = [out.index(text) for text in ("> add, please", "→ add(", "the sum is 7", "I see.")]
    assert places == sorted(places)


def test_an_empty_line_sends_the_example_of_the_case(
    codecs: dict[str, ChatCodec], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Chat(codecs["qwen3"], lambda _: "fine").shown(monkeypatch, "")
    assert "for example: What is 3 + 4?" in out
    assert "fine" in out


def counting(prompt: str) -> str:
    return f"{prompt.count('<|im_start|>user')} questions so far"


def test_the_history_grows_until_new_starts_over_with_the_examples_of_the_next_case(
    codecs: dict[str, ChatCodec], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Chat(codecs["qwen3"], counting)
    out = chat.shown(monkeypatch, "one", "two", "/new", "three")
    assert [line.split()[0] for line in out.splitlines() if "so far" in line] == ["1", "2", "2"]
    assert "for example: What is 2 + 2?" in out
    assert chat.ended == ["first", "second"]


def test_a_conversation_begins_with_the_worked_examples_of_the_agent(
    codecs: dict[str, ChatCodec], monkeypatch: pytest.MonkeyPatch
) -> None:
    example = worked_example("What is 1 + 1?", worked_call(add, a=1, b=1), answer="It is 2.")
    chat = Chat(codecs["qwen3"], counting, examples=(example,))
    out = chat.shown(monkeypatch, "one", "two", "/new", "three")
    assert "starts with 4 items of worked examples" in out
    assert [line.split()[0] for line in out.splitlines() if "so far" in line] == ["3", "4", "4"]


def test_a_world_that_cannot_begin_does_not_end_the_chat(
    codecs: dict[str, ChatCodec], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    def begin(case: Case, ended: list[str]) -> None:
        begun.append(case.id)
        if len(begun) == 2:
            raise ConnectionError("no database")

    monkeypatch.setattr("tests.jobs.test_chat.World", begin)
    out = Chat(codecs["qwen3"], lambda _: "fine").shown(
        monkeypatch, "/new", "hello", "/new", "hello"
    )
    assert "(ConnectionError: no database)" in out
    assert out.count("(the conversation could not begin; /new tries the next case)") == 1
    assert "fine" in out
    assert begun == ["first", "second", "first"]


def test_commands_are_not_sent_to_the_model(
    codecs: dict[str, ChatCodec], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[str] = []

    def reply(prompt: str) -> str:
        prompts.append(prompt)
        return "fine"

    chat = Chat(codecs["qwen3"], reply)
    out = chat.shown(monkeypatch, "/tools", "/what", "/quit", "after the end")
    assert "add  Add two numbers." in out
    assert "/new    start over" in out
    assert prompts == []
    assert chat.ended == ["first"]


def test_a_chat_continues_after_an_agent_that_fails_or_never_answers(
    codecs: dict[str, ChatCodec], monkeypatch: pytest.MonkeyPatch
) -> None:
    def reply(prompt: str) -> str:
        if "loop" in prompt:
            return call("add", a=1, b=1)
        if "break" in prompt:
            raise InfrastructureError("out of memory")
        return "still here"

    out = Chat(codecs["qwen3"], reply).shown(monkeypatch, "loop", "break", "hello")
    assert "(no answer within the limit of tool rounds)" in out
    assert "(out of memory)" in out
    assert "still here" in out


@pytest.mark.parametrize(
    "error", [RuntimeError("no memory"), ModelBehaviorError("no JSON"), KeyError("the user's code")]
)
def test_a_chat_prints_an_error_of_a_turn_and_continues(
    codecs: dict[str, ChatCodec], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def reply(prompt: str) -> str:
        if "break" in prompt:
            raise error
        return "still here"

    chat = Chat(codecs["qwen3"], reply)
    out = chat.shown(monkeypatch, "break", "hello")
    assert f"({type(error).__name__}: {error})" in out
    assert "still here" in out
    assert chat.ended == ["first"]


class Clock(MCPServerStdio):
    """A server that notes when it is connected."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__({"command": "true"})
        self.notes = notes

    async def connect(self) -> None:
        self.notes.append("connected")

    async def cleanup(self) -> None:
        self.notes.append("closed")

    async def list_tools(self, *_: Any, **__: Any) -> list[Any]:
        assert self.notes == ["connected"]
        schema = {"type": "object", "properties": {}}
        return [McpTool(name="now", description="The time.", inputSchema=schema)]


def test_the_servers_of_agent_and_world_are_connected_for_the_chat(
    codecs: dict[str, ChatCodec], monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    prompts: list[str] = []

    def reply(prompt: str) -> str:
        prompts.append(prompt)
        return "fine"

    chat = Chat(codecs["qwen3"], reply, servers=[Clock(notes)])
    out = chat.shown(monkeypatch, "one", "/tools", "two")
    assert notes == ["connected", "closed"]
    assert "now  The time." in out
    assert all('"name": "now"' in prompt for prompt in prompts)
    assert len(prompts) == 2


def test_ctrl_c_ends_the_world(
    codecs: dict[str, ChatCodec], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Chat(codecs["qwen3"], lambda _: "fine")

    def interrupted(_: Console) -> str:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        threading.Event().wait(60)
        return ""

    monkeypatch.setattr("sparring.jobs.chat._read_line", interrupted)
    with pytest.raises(KeyboardInterrupt):
        chat.shown(monkeypatch)
    assert chat.ended == ["first"]


def test_a_model_behind_a_server_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "talk.py"
    file.write_text(TALK)
    monkeypatch.setenv("CHAT_KEY", "planted")
    endpoint = {"base_url": "http://127.0.0.1:9/v1", "model": "x", "key_variable": "CHAT_KEY"}
    request = {
        "target": f"{file}:Talk",
        "config": {},
        "play": {},
        "policy": {"kind": "endpoint", "endpoints": [endpoint]},
        "about": "",
    }
    assert main(request) == 2
    assert "chat needs weights in this process" in capsys.readouterr().err


def test_a_suite_that_is_too_small_to_train_can_be_chatted_with(
    codecs: dict[str, ChatCodec], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Chat(codecs["qwen3"], adds_once)
    chat.suite = Suite.from_records([{"input": f"What is {n} + 4?"} for n in range(25)])
    assert "I see." in chat.shown(monkeypatch, "")
