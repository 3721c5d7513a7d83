"""The model that the SDK sees records every turn in the episode, and ends it with a cause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from agents import ModelResponse, ModelSettings, ModelTracing, RunConfig, Tool, function_tool

from sparring.contracts.cases import Case
from sparring.contracts.limits import Limits
from sparring.contracts.policies import SampleRequest
from sparring.contracts.rollouts import Ending, Message, Rollout, RolloutKey
from sparring.player.episode import Episode, EpisodeOver
from sparring.player.recorder import Recorder
from sparring.player.sdk_model import EpisodeModel, common_run_config
from sparring.player.tools import ToolStage
from sparring.policies.codec import ChatCodec
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.threads import DaemonThreads
from tests.rollouts import call

ADD = call("add", a=1, b=2)


@function_tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


class Played:
    """An episode whose model says these texts, one per turn."""

    def __init__(self, codec: ChatCodec, script: Callable[[SampleRequest], str]) -> None:
        limits = Limits(completion_tokens=200)
        self.episode = Episode(RolloutKey(0, 0, "c", 0), Case("c", "question"), limits)
        recorder = Recorder(ScriptedPolicy(script, codec), self.episode)
        stage = ToolStage(limits, DaemonThreads(1), codec)
        self.model = EpisodeModel(self.episode, recorder, stage, common_run_config(), 1.0)

    def turn(self, settings: ModelSettings | None = None) -> ModelResponse:
        tools: list[Tool] = [add]
        return asyncio.run(
            self.model.get_response(
                "Be brief.", "question", settings or ModelSettings(), tools, None, [],
                ModelTracing.DISABLED, previous_response_id=None, conversation_id=None, prompt=None,
            )
        )  # fmt: skip

    def rollout(self) -> Rollout:
        return self.episode.finish([], None, None)


@pytest.fixture
def saying(codecs: dict[str, ChatCodec]) -> Callable[..., Played]:
    def made(*said: str) -> Played:
        return Played(codecs["qwen3"], lambda request: said[request.key.turn])

    return made


def test_a_turn_is_recorded_and_returned_with_the_ids_of_the_episode(saying: Any) -> None:
    played = saying(ADD)
    response = played.turn()
    rollout = played.rollout()
    (made,) = rollout.tool_calls
    assert [item.call_id for item in response.output] == [made.id]
    assert [message.role for message in rollout.messages] == ["user", "assistant"]
    assert rollout.messages[0] == Message("user", "question")
    assert (response.usage.input_tokens, response.usage.output_tokens) == (
        rollout.tokens.prompt,
        rollout.tokens.sampled,
    )


def test_after_its_ending_no_turn_is_played(saying: Any) -> None:
    played = saying("never said")
    played.episode.end(Ending.TURN_LIMIT)
    with pytest.raises(EpisodeOver):
        played.turn()
    assert played.rollout().turns == 0


@pytest.mark.parametrize(
    ("settings", "detail"),
    [
        (ModelSettings(), "the answer was cut off"),
        (ModelSettings(max_tokens=9), "a turn was cut off at the agent's max_tokens of 9"),
    ],
)
def test_a_turn_that_is_cut_off_ends_the_rollout_and_says_whose_limit_it_was(
    saying: Any, settings: ModelSettings, detail: str
) -> None:
    played = saying("word " * 300)
    with pytest.raises(EpisodeOver):
        played.turn(settings)
    assert played.rollout().ending is Ending.TOKEN_BUDGET
    assert played.rollout().detail == detail
    assert played.rollout().answer.startswith("word word")


def test_a_policy_that_breaks_is_an_infrastructure_error_with_its_cause(
    codecs: dict[str, ChatCodec],
) -> None:
    def broken(_: SampleRequest) -> str:
        raise ConnectionError("no route")

    played = Played(codecs["qwen3"], broken)
    with pytest.raises(EpisodeOver) as raised:
        played.turn()
    assert isinstance(raised.value.__cause__, ConnectionError)
    assert played.rollout().ending is Ending.INFRASTRUCTURE_ERROR
    assert played.rollout().detail == "ConnectionError: no route"


def test_a_call_that_cannot_be_read_ends_the_rollout_but_not_from_a_nested_agent(
    saying: Any,
) -> None:
    broken = "<tool_call>\n{broken\n</tool_call>"
    played = saying(broken, broken)
    with played.model.nested():
        played.turn()
    assert not played.episode.is_over
    played.turn()
    assert played.rollout().ending is Ending.UNPARSABLE_CALL
    assert played.rollout().detail


def test_without_parallel_calls_all_but_the_first_are_refused(saying: Any) -> None:
    played = saying(f"{ADD}\n{ADD}\n{ADD}")
    response = played.turn(ModelSettings(parallel_tool_calls=False))
    refusals = [played.episode.refusal_of(item.call_id) for item in response.output]
    assert refusals[0] is None
    assert [str(reason) for reason in refusals[1:]] == [
        "Not done: one call at a time. Call it again."
    ] * 2


def test_a_run_config_is_copied_and_keeps_what_the_user_set(saying: Any) -> None:
    model = saying().model
    given = RunConfig(workflow_name="mine", tool_not_found_behavior="raise_error")
    config = model.run_config(given)
    assert (config.model, config.workflow_name, config.tracing_disabled) == (model, "mine", True)
    assert config.tool_not_found_behavior == "return_error_to_model"
    assert (given.model, given.tracing_disabled) == (None, False)
    assert model.run_config(None).tool_execution == common_run_config().tool_execution


def test_a_nested_run_with_another_model_ends_the_rollout_with_the_reason(saying: Any) -> None:
    played = saying()
    with pytest.raises(EpisodeOver):
        played.model.refuse_escape("it names another model")
    assert played.rollout().ending is Ending.INFRASTRUCTURE_ERROR
    assert played.rollout().detail == "it names another model"
