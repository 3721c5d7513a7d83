"""What agent.json holds comes back as it was written, and every prompt can be made of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, function_tool

from sparring.contracts.cases import Case
from sparring.contracts.errors import FaultyArtefact
from sparring.contracts.rollouts import Message, RolloutKey
from sparring.environments.examples import call, input_items, worked_example
from sparring.player import Play
from sparring.player.conversation import Prompt
from sparring.shipping.conversations import EncodedChat, first_prompts
from sparring.shipping.shipped_agent import AGENT, Frame, ShippedAgent, unshipped_beginning
from sparring.shipping.source import Source
from sparring.shipping.verification import check_folder_prompt
from tests.shipping.made import conversations_of


@function_tool
def ring(times: int) -> str:
    """Ring the bell."""
    return "ding " * times


EXAMPLES = input_items(
    [
        worked_example("hello Zoe", call(ring, times=2), answer="done"),
        worked_example("both", [call(ring, times=1), call(ring, times=3)], answer="done"),
    ]
)
AGENT_OBJECT: Agent[Any] = Agent(name="porter", instructions="Let them in.", tools=[ring])
OTHER: Agent[Any] = Agent(name="porter")


def prompts(agent: Agent[Any], source: Source, *names: str, **options: Any) -> list[EncodedChat]:
    plays = [Play(RolloutKey(0, 0, each, 0), Case(each, f"hello {each}")) for each in names]
    return asyncio.run(first_prompts(agent, source.codec(), plays, None, **options))


def written(agent: ShippedAgent, place: Path, **changes: Any) -> ShippedAgent:
    (place / AGENT).write_text(json.dumps({**agent.as_json(), **changes}))
    return ShippedAgent.read(place)


def test_the_folder_gives_the_proved_prompt_without_the_agent(
    source: Source, tmp_path: Path
) -> None:
    proved = prompts(AGENT_OBJECT, source, "Ada", "Ben", examples=EXAMPLES)
    agent = written(ShippedAgent.of("bell", proved, EXAMPLES), tmp_path)
    assert agent.number_of_examples == 2
    assert agent.items() == EXAMPLES
    assert [message["role"] for message in agent.examples[:4]] == [
        "user", "assistant", "tool", "assistant",
    ]  # fmt: skip
    found = prompts(OTHER, source, "Ada", "Ben", examples=agent.items(), reframe=agent.reframe)
    assert [each.ids for each in found] == [each.ids for each in proved]
    assert found[0].tools == proved[0].tools


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"examples": []}, "hello Zoe"),
        (
            {"agents": [{"name": "porter", "instructions": "Let nobody in.", "tools": []}]},
            "them in",
        ),
    ],
)
def test_a_folder_that_gives_another_prompt_is_refused_with_the_first_difference(
    source: Source, tmp_path: Path, changes: dict[str, Any], shown: str
) -> None:
    proved = prompts(AGENT_OBJECT, source, "Ada", examples=EXAMPLES)
    agent = written(ShippedAgent.of("bell", proved, EXAMPLES), tmp_path, **changes)
    (found,) = prompts(AGENT_OBJECT, source, "Ada", examples=agent.items(), reframe=agent.reframe)
    with pytest.raises(FaultyArtefact, match="does not give the prompt that was proved") as error:
        check_folder_prompt(found, proved[0], source.codec())
    assert shown in str(error.value)


@pytest.mark.parametrize("content", ["", "[]", '{"agents": []}', '{"agents": [{"name": 1}]}'])
def test_a_file_that_cannot_be_read_is_faulty(tmp_path: Path, content: str) -> None:
    (tmp_path / AGENT).write_text(content)
    with pytest.raises(FaultyArtefact, match=r"agent\.json cannot be read"):
        ShippedAgent.read(tmp_path)


def test_each_distinct_agent_is_listed_once_and_none_of_a_secret_case(source: Source) -> None:
    conversations = conversations_of(source)
    content = ShippedAgent.of("bell", conversations, ()).as_json()
    assert [each["instructions"] for each in content["agents"]] == ["", "Let them in, one by one."]
    assert content["agents"][0]["tools"][0]["function"]["name"] == "ring"
    secret = {each.case for each in conversations}
    assert ShippedAgent.of("bell", conversations, (), secret=secret).frames == ()


def test_of_several_frames_the_agents_code_chooses() -> None:
    frames = (Frame("a", "Say yes.", ()), Frame("a", "Say no.", ()), Frame("b", "Help.", ()))
    agent = ShippedAgent("bell", frames)
    for given in (Prompt("Say no.", [], [], None), Prompt("Say maybe.", [], [], None)):
        assert agent.reframe("a", given).system == given.system
    assert agent.reframe("b", Prompt("other", [], [], None)).system == "Help."
    assert agent.reframe("c", Prompt("other", [], [], None)).system == "other"


def test_an_output_schema_in_the_instructions_is_not_repeated() -> None:
    schema = {"type": "object"}
    frame = Frame("a", "Help.\n\nGive your final answer as JSON that fits this schema:\n{}", ())
    found = ShippedAgent("bell", (frame,)).reframe("a", Prompt("Help.", [], [], schema))
    assert (found.system, found.output_schema) == (frame.instructions, None)


def test_messages_that_all_cases_share_are_counted_unless_they_are_examples(
    source: Source,
) -> None:
    (chat,) = prompts(AGENT_OBJECT, source, "Ada")
    shared = (Message("user", "1?"), Message("assistant", "one"))

    def beginning_with(*messages: Message) -> list[EncodedChat]:
        return [
            replace(chat, case=name, messages=(*messages, Message("user", f"hello {name}")))
            for name in ("Ada", "Ben")
        ]

    plain = ShippedAgent("bell", ())
    assert unshipped_beginning(beginning_with(*shared), plain) == 2
    assert unshipped_beginning(beginning_with(), plain) == 0
    assert unshipped_beginning(beginning_with(*shared)[:1], plain) == 0
    declared = replace(plain, examples=({"role": "user", "content": "1?"},) * 2)
    assert unshipped_beginning(beginning_with(*shared), declared) == 0
