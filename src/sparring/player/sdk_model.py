"""The SDK model and the run config that rollouts use."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from agents import (
    AgentOutputSchemaBase,
    Handoff,
    ModelResponse,
    ModelSettings,
    ModelTracing,
    RunConfig,
    Tool,
    ToolExecutionConfig,
)
from agents.items import TResponseInputItem
from openai.types.responses.response_prompt_param import ResponsePromptParam

from sparring.contracts.policies import Finish
from sparring.contracts.rollouts import Ending, Message
from sparring.player.conversation import to_items, to_messages
from sparring.player.episode import Episode, EpisodeOver, Turn
from sparring.player.model_adapters import AdapterReply, ModelAdapter
from sparring.player.nested_runs import ACTIVE_AGENT, RunModel, recording_active_agent
from sparring.player.prompts import Prompt, prompt_of
from sparring.player.tool_errors import ToolErrors
from sparring.player.tools import ToolStage, release_held_slot
from sparring.player.worlds import add_world_tools


class EpisodeModel(RunModel):
    """The model of every agent in one rollout, including nested agents and handoff targets."""

    def __init__(
        self, episode: Episode, adapter: ModelAdapter, stage: ToolStage, common: RunConfig
    ) -> None:
        self._episode = episode
        self._common = common
        self._adapter = adapter
        self._stage = stage
        self._errors = ToolErrors(episode.note_failure)

    def run_config(self, given: RunConfig | None) -> RunConfig:
        """Return a copy of `given`, or of the common run config, with this rollout's model, filter
        and error formatter.

        The config is copied because constructing one takes 2 ms, as much as the rest of a turn.
        """
        config = copy.copy(given or self._common)
        config.model = self
        config.tracing_disabled = True
        config.tool_not_found_behavior = self._common.tool_not_found_behavior
        config.tool_execution = self._common.tool_execution
        config.call_model_input_filter = recording_active_agent(config.call_model_input_filter)
        config.tool_error_formatter = self._errors.formatter(config.tool_error_formatter)
        return config

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Release the slot of the tool that starts the nested run, and keep the replies of the
        nested run from becoming the rollout's answer."""
        release_held_slot()
        with self._episode.nested_call(), self._adapter.nested():
            yield

    def refuse_escape(self, message: str) -> NoReturn:
        """End the rollout with an infrastructure error and raise EpisodeOver."""
        self._episode.end(Ending.INFRASTRUCTURE_ERROR, message)
        raise EpisodeOver

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: ResponsePromptParam | None,
    ) -> ModelResponse:
        """Play one turn and record it in the episode."""
        episode = self._episode
        if episode.is_over:
            raise EpisodeOver
        active = ACTIVE_AGENT.get()
        episode.agent = active.agent
        turn = episode.begin_turn()
        add_world_tools(tools, active.context)
        turn_prompt = prompt_of(system_instructions, input, tools, output_schema, handoffs)
        episode.offers_tools |= bool(tools)  # without handoffs
        self._stage.govern(tools)
        answer = await self._respond(turn, turn_prompt, model_settings)
        reply = answer.reply
        calls = episode.add_reply(reply, turn)
        self._errors.remember(calls, turn_prompt.tools)
        if answer.finish is Finish.LENGTH:
            episode.end(Ending.TOKEN_BUDGET, _cut_off_detail(model_settings, answer.tokens))
            raise EpisodeOver
        if reply.malformed and not episode.open_calls:
            episode.end(Ending.UNPARSABLE_CALL, reply.malformed)
        if model_settings.parallel_tool_calls is False:
            episode.refuse_calls(calls[1:], "Not done: one call at a time. Call it again.")
        answer.note_reply(Message("assistant", reply.content, calls=tuple(calls)), turn.number)
        output = to_items(reply, calls, turn.number)
        return ModelResponse(output=output, usage=answer.usage, response_id=None)

    async def _respond(self, turn: Turn, prompt: Prompt, settings: ModelSettings) -> AdapterReply:
        """Call the model adapter. An exception ends the rollout with an infrastructure error. The
        ending is recorded here, because in a nested run the SDK would turn the exception into a
        tool result."""
        try:
            self._episode.add_messages(to_messages(prompt.items[prompt.last_own_index + 1 :]))
            return await self._adapter.respond(turn, prompt, settings)
        except EpisodeOver:
            raise
        except Exception as error:
            self._episode.end(Ending.INFRASTRUCTURE_ERROR, f"{type(error).__name__}: {error}")
            raise EpisodeOver from error


def common_run_config() -> RunConfig:
    """Return the run config that all rollouts copy. The calls of one turn run one at a time."""
    return RunConfig(
        tracing_disabled=True,
        tool_not_found_behavior="return_error_to_model",
        tool_execution=ToolExecutionConfig(max_function_tool_concurrency=1),
    )


def _cut_off_detail(settings: ModelSettings, sampled: int) -> str:
    if settings.max_tokens is not None and sampled >= settings.max_tokens:
        return f"a turn was cut off at the agent's max_tokens of {settings.max_tokens}"
    return "the answer was cut off"
