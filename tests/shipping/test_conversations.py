"""Prompts are recorded from a real play of the agent, and continued with what was played."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from agents import Agent, function_tool

from sparring.contracts.cases import Case, Split
from sparring.contracts.rollouts import Message, RequestedCall, RolloutKey
from sparring.player import Play
from sparring.shipping.conversations import continued, first_prompts, trained_ids
from sparring.shipping.source import Source
from tests.proofs.made import answered


@function_tool
def ring() -> str:
    """Ring the bell."""
    return "ding"


AGENT = Agent(name="porter", instructions="Let them in.", tools=[ring])


def prompts(source: Source) -> list[object]:
    case = Case("c1", "hello Ada", None, Split.VALIDATION)
    plays = [Play(RolloutKey(0, 0, "c1", 0), case)]
    return asyncio.run(first_prompts(AGENT, source.codec(), plays, None))  # type: ignore[return-value]


def test_the_first_prompt_has_instructions_tools_and_ids(source: Source) -> None:
    (found,) = prompts(source)
    assert found.system == "Let them in."  # type: ignore[attr-defined]
    assert found.tools[0]["function"]["name"] == "ring"  # type: ignore[attr-defined]
    text = source.codec().decode(found.ids)  # type: ignore[attr-defined]
    assert "Let them in." in text
    assert '"name": "ring"' in text
    assert text.endswith("<|im_start|>assistant\n")


def test_a_rollout_with_a_call_continues_its_prompt_up_to_the_last_answer(source: Source) -> None:
    (found,) = prompts(source)
    call = RequestedCall("c", "ring", "{}")
    messages = (
        Message("user", "hello Ada"),
        Message("assistant", "", calls=(call,)),
        Message("tool", "ding", call_id="c"),
        Message("assistant", "done"),
    )
    rollout = replace(answered("c1", 1.0), messages=messages)
    assert continued(found, rollout, source.codec()) is None  # type: ignore[arg-type] # no rows
    from array import array

    from sparring.contracts.rollouts import Span, TokenKind, TokenRow

    row = TokenRow(
        "porter", array("i", [1, 2, 3]), array("f", [0.0]),
        (Span(TokenKind.PROMPT, 2), Span(TokenKind.SAMPLED, 1)),
    )  # fmt: skip
    rollout = replace(rollout, rows=(row,))
    longer = continued(found, rollout, source.codec())  # type: ignore[arg-type]
    assert longer is not None
    assert longer.messages[-1].content == "ding"
    assert trained_ids(rollout).tolist() == [1, 2]
    other = replace(rollout, messages=(Message("user", "hello Ben"), *messages[1:]))
    assert continued(found, other, source.codec()) is None  # type: ignore[arg-type]
