"""The SDK's view of a rollout: a `Model`, and the run configuration around it."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

from agents import (
    AgentOutputSchemaBase,
    FunctionTool,
    Handoff,
    Model,
    ModelBehaviorError,
    ModelResponse,
    ModelSettings,
    ModelTracing,
    RunConfig,
    Tool,
    ToolExecutionConfig,
    Usage,
)
from agents.items import TResponseInputItem, TResponseStreamEvent
from agents.run_config import CallModelData, ModelInputData, ToolErrorFormatterArgs
from openai.types.responses.response_prompt_param import ResponsePromptParam

from sparring.contracts.policies import Finish
from sparring.contracts.rollouts import CallFailure, Ending
from sparring.player.arguments import argument_problems
from sparring.player.conversation import Item, to_items, to_messages
from sparring.player.episode import Episode, EpisodeOver, Turn
from sparring.player.tools import ToolStage
from sparring.player.voices import Prompt, Spoken, Voice


class EpisodeModel(Model):
    """Answers for every agent of one rollout, nested ones and handoffs included."""

    def __init__(self, episode: Episode, voice: Voice, stage: ToolStage) -> None:
        self._episode = episode
        self._voice = voice
        self._stage = stage
        self._offered: dict[str, dict[str, Mapping[str, Any]]] = {}

    def run_config(self, common: RunConfig) -> RunConfig:
        """`common` with this rollout's own seams.

        A copy: making a RunConfig takes the SDK 2 ms, as long as a turn.
        """
        config = copy.copy(common)
        config.model = self
        config.call_model_input_filter = self._note_agent
        config.tool_error_formatter = self._explain_failure
        return config

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
        episode = self._episode
        if episode.is_over:
            raise EpisodeOver
        turn = episode.begin_turn()
        said = prompt_of(system_instructions, input, tools, output_schema, handoffs)
        self._offered[turn.agent] = {
            tool["function"]["name"]: tool["function"] for tool in said.tools
        }
        self._stage.govern(tools)
        spoken = await self._speak(turn, said)
        reply = spoken.reply
        calls = episode.say(reply, turn)
        if spoken.finish is Finish.LENGTH:
            episode.end(Ending.TOKEN_BUDGET, "the answer was cut off")
            raise EpisodeOver
        if reply.malformed and not episode.open_calls:
            episode.end(Ending.UNPARSABLE_CALL, reply.malformed)
        return ModelResponse(
            output=to_items(reply, calls, turn.number), usage=Usage(requests=1), response_id=None
        )

    async def _speak(self, turn: Turn, said: Prompt) -> Spoken:
        """One turn of the voice. What breaks here is never the model's doing, and is noted
        before the SDK can turn it into a tool result for an outer agent."""
        try:
            self._episode.hear(to_messages(said.items[said.last_own + 1 :]))
            return await self._voice.speak(turn, said)
        except EpisodeOver:
            raise
        except Exception as error:
            self._episode.end(Ending.MACHINERY, f"{type(error).__name__}: {error}")
            raise EpisodeOver from error

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise NotImplementedError("Sparring plays without streaming; use Runner.run")

    def _note_agent(self, data: CallModelData[Any]) -> ModelInputData:
        """The SDK tells its model everything but whose turn it is; this is where it does."""
        self._episode.agent = data.agent.name
        return data.model_data

    def _explain_failure(self, failure: ToolErrorFormatterArgs[Any]) -> str | None:
        """What the model reads when a tool fails: enough to do better next time."""
        if failure.kind == "tool_not_found":
            self._episode.note_failure(failure.call_id, CallFailure.UNKNOWN_TOOL)
            listed = ", ".join(self._tools_around(failure.call_id)) or "none"
            return f"There is no tool {failure.tool_name!r}. The tools are: {listed}."
        if failure.kind != "tool_exception" or failure.error is None:
            return None
        self._episode.note_failure(failure.call_id, CallFailure.RAISED)
        reason = f"{type(failure.error).__name__}: {' '.join(str(failure.error).split())}"
        if isinstance(failure.error, ModelBehaviorError):  # arguments that the SDK refused
            tool = self._tools_around(failure.call_id).get(failure.tool_name, {})
            schema = tool.get("parameters", {})
            arguments = self._episode.arguments_of(failure.call_id)
            reason = argument_problems(arguments, schema) or reason
        return f"{failure.tool_name} failed: {reason}"

    def _tools_around(self, call_id: str) -> dict[str, Mapping[str, Any]]:
        """The tools that the agent who made this call was offered."""
        return self._offered.get(self._episode.caller_of(call_id), {})


def common_run_config() -> RunConfig:
    """What the run configurations of all rollouts share."""
    return RunConfig(
        tracing_disabled=True,
        tool_not_found_behavior="return_error_to_model",
        tool_execution=ToolExecutionConfig(max_function_tool_concurrency=1),
    )


def prompt_of(
    system: str | None,
    input: str | list[TResponseInputItem],
    tools: list[Tool],
    output_schema: AgentOutputSchemaBase | None,
    handoffs: list[Handoff[Any, Any]],
) -> Prompt:
    items = [{"role": "user", "content": input}] if isinstance(input, str) else input
    offered = [
        _schema(tool.name, tool.description, tool.params_json_schema)
        for tool in tools
        if isinstance(tool, FunctionTool)
    ]
    offered += [
        _schema(handoff.tool_name, handoff.tool_description, handoff.input_json_schema)
        for handoff in handoffs
    ]
    plain = output_schema is None or output_schema.is_plain_text()
    return Prompt(
        system=system or "",
        items=cast("list[Item]", items),
        tools=offered,
        output_schema=None if plain or output_schema is None else output_schema.json_schema(),
    )


def _schema(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }
