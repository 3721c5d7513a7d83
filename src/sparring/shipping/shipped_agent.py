"""`agent.json` of a shipped folder: what every prompt of the agent begins with.

It holds instructions, tool schemas and worked examples. An artefact is played and verified with
what is read from this file, so that a prompt holds nothing that the folder lacks.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from sparring.contracts.chat import ChatMessage, ToolSchema
from sparring.contracts.errors import FaultyArtefact, SuiteError
from sparring.contracts.json import JsonObject
from sparring.contracts.rollouts import Message
from sparring.player.conversation import Prompt, to_messages
from sparring.player.recorder import with_output_schema
from sparring.shipping.conversations import EncodedChat
from sparring.shipping.template import chat_messages
from sparring.suites.records import to_input_items

AGENT = "agent.json"


@dataclass(frozen=True, slots=True)
class Frame:
    """The instructions of an agent, with its output schema if it has one, and its tool schemas."""

    name: str
    instructions: str
    tools: tuple[ToolSchema, ...]


@dataclass(frozen=True, slots=True)
class ShippedAgent:
    """The agents of a shipment, first the one that answers, and the messages of its worked
    examples. An agent has several frames if its instructions or tools depend on the case."""

    environment: str
    frames: tuple[Frame, ...]
    examples: tuple[ChatMessage, ...] = ()

    @classmethod
    def of(
        cls,
        environment: str,
        conversations: Sequence[EncodedChat],
        examples: Sequence[JsonObject],
        *,
        secret: Container[str] = (),
    ) -> Self:
        """Return the distinct frames of conversations, and examples given as input items.
        Instructions may quote their case, so those of the cases in `secret` are left out."""
        frames: list[Frame] = []
        for each in conversations:
            frame = Frame(each.agent, each.system, each.tools)
            if each.case not in secret and frame not in frames:
                frames.append(frame)
        messages = chat_messages(to_messages(examples))
        return cls(environment, tuple(frames), tuple(messages))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read `agent.json` of a folder. Raises FaultyArtefact if it cannot be used."""
        try:
            content = json.loads((folder / AGENT).read_text(encoding="utf-8"))
            frames = [
                Frame(str(each["name"]), str(each["instructions"]), tuple(each["tools"]))
                for each in content["agents"]
            ]
            shipped = cls(str(content["environment"]), tuple(frames), tuple(content["examples"]))
            shipped.items()
        except (OSError, ValueError, KeyError, TypeError, SuiteError) as error:
            raise FaultyArtefact(
                f"{AGENT} cannot be read: {type(error).__name__}: {error}; ship again"
            ) from error
        return shipped

    def as_json(self) -> JsonObject:
        """Return the content of `agent.json`."""
        agents = [
            {"name": each.name, "instructions": each.instructions, "tools": list(each.tools)}
            for each in self.frames
        ]
        return {
            "format": 1,
            "environment": self.environment,
            "agents": agents,
            "examples": list(self.examples),
        }

    def require(self, names: Collection[str]) -> None:
        """Raise FaultyArtefact unless there is a frame of each named agent."""
        if missing := sorted(set(names) - {each.name for each in self.frames}):
            raise FaultyArtefact(
                f"{AGENT} has no instructions and tools of {', '.join(missing)}; ship again"
            )

    @property
    def number_of_examples(self) -> int:
        """The number of worked examples; each has one question."""
        return sum(each["role"] == "user" for each in self.examples)

    def items(self) -> list[JsonObject]:
        """Return the examples as input items of the agents SDK."""
        return to_input_items(self.examples, AGENT)

    def reframe(self, agent: str, given: Prompt) -> Prompt:
        """Return a prompt of the named agent with the instructions and tool schemas of the folder.
        If the agent has several frames, its code chooses: the prompt is returned as it is unless it
        has one of them. That of an agent without a frame, which a tool's code has made, is returned
        as it is, too."""
        frames = [each for each in self.frames if each.name == agent]
        if len(frames) > 1:
            system = with_output_schema(given.system, given.output_schema)
            own = Frame(agent, system, tuple(given.tools))
            frames = [each for each in frames if each == own]
        if not frames:
            return given
        (frame,) = frames
        return replace(given, system=frame.instructions, tools=frame.tools, output_schema=None)


def unshipped_beginning(conversations: Sequence[EncodedChat], shipped: ShippedAgent) -> int:
    """Return how many messages all cases begin with, besides the worked examples of the folder."""
    known = len(shipped.examples)
    given = [
        [each for each in chat.messages if each.role != "system"][known:-1]
        for chat in conversations
    ]
    if len({chat.case for chat in conversations}) < 2:
        return 0
    shared = 0
    for column in zip(*given, strict=False):
        if any(_content_of(each) != _content_of(column[0]) for each in column):
            break
        shared += 1
    return shared


def _content_of(message: Message) -> tuple[object, ...]:
    """Return what a message says, without its call ids."""
    return (message.role, message.content, [(each.tool, each.arguments) for each in message.calls])
