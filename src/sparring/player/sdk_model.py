"""The SDK's view of a rollout: a `Model`, and the run configuration around it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from itertools import islice
from typing import Any, cast

import jsonschema
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
from agents.models.interface import ModelProvider
from agents.run_config import CallModelData, ModelInputData, ToolErrorFormatterArgs
from openai.types.responses.response_prompt_param import ResponsePromptParam

from sparring.contracts.policies import Finish
from sparring.contracts.rollouts import CallFailure, Ending
from sparring.player.conversation import Item, to_items, to_messages
from sparring.player.episode import Episode, EpisodeOver
from sparring.player.tools import ToolStage
from sparring.player.voices import Prompt, Voice


class EpisodeModel(Model):
    """Answers for every agent of one rollout, nested ones and handoffs included."""

    def __init__(self, episode: Episode, voice: Voice, stage: ToolStage) -> None:
        self._episode = episode
        self._voice = voice
        self._stage = stage
        self._offered: dict[str, Mapping[str, Any]] = {}

    def run_config(self, provider: ModelProvider) -> RunConfig:
        return RunConfig(
            model=self,
            model_provider=provider,
            tracing_disabled=True,
            call_model_input_filter=self._note_agent,
            tool_error_formatter=self._explain_failure,
            tool_not_found_behavior="return_error_to_model",
            tool_execution=_ONE_AFTER_ANOTHER,
        )

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
        turn = episode.begin_turn()
        said = _prompt(system_instructions, input, tools, output_schema, handoffs)
        self._offered = {tool["function"]["name"]: tool["function"] for tool in said.tools}
        self._stage.govern(tools)
        episode.hear(to_messages(said.items[said.last_own + 1 :]))
        spoken = await self._voice.speak(turn, said)
        reply = spoken.reply
        calls = episode.say(reply, turn)
        if spoken.finish is Finish.LENGTH:
            episode.end(Ending.TOKEN_BUDGET, "the answer was cut off")
            raise EpisodeOver
        if reply.malformed and not episode.nested_calls:
            episode.end(Ending.UNPARSABLE_CALL, reply.malformed)
        return ModelResponse(
            output=to_items(reply, calls, turn.number), usage=Usage(requests=1), response_id=None
        )

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
            listed = ", ".join(self._offered) or "none"
            return f"There is no tool {failure.tool_name!r}. The tools are: {listed}."
        if failure.kind != "tool_exception" or failure.error is None:
            return None
        self._episode.note_failure(failure.call_id, CallFailure.RAISED)
        reason = f"{type(failure.error).__name__}: {failure.error}"
        if isinstance(failure.error, ModelBehaviorError):  # arguments that the SDK refused
            schema = self._offered.get(failure.tool_name, {}).get("parameters", {})
            arguments = self._episode.arguments_of(failure.call_id)
            reason = _argument_problems(arguments, schema) or reason
        return f"{failure.tool_name} failed: {reason}"


_PROBLEM_LENGTH = 120
_ONE_AFTER_ANOTHER = ToolExecutionConfig(max_function_tool_concurrency=1)


def _prompt(
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


def _argument_problems(arguments: str, schema: Mapping[str, Any]) -> str:
    """What is wrong with a call's arguments; the SDK keeps that to itself."""
    problems = jsonschema.Draft202012Validator(schema).iter_errors(json.loads(arguments))
    return "; ".join(
        f"{problem.json_path.removeprefix('$.').removeprefix('$') or 'arguments'}: "
        f"{problem.message[:_PROBLEM_LENGTH]}"
        for problem in islice(problems, 3)
    )
