"""An SDK model that samples from a token policy, for running a trained agent."""

from __future__ import annotations

import copy
import secrets
import sys
from typing import Any

from agents import (
    AgentOutputSchemaBase,
    Handoff,
    ModelResponse,
    ModelSettings,
    RunConfig,
    Tool,
)
from agents.items import TResponseInputItem

from sparring.contracts.cases import Case
from sparring.contracts.limits import Limits
from sparring.contracts.policies import SampleKey, Sampling, TokenPolicy
from sparring.contracts.rollouts import RequestedCall, RolloutKey
from sparring.player.episode import Episode
from sparring.player.model_settings import forced_tool, sampling_for
from sparring.player.nested_runs import (
    ACTIVE_AGENT,
    RunModel,
    recording_active_agent,
    route_nested_runs,
)
from sparring.player.prompts import prompt_of
from sparring.player.recorder import Recorder
from sparring.player.tagged_turns import TaggedTurns
from sparring.player.tool_errors import ToolErrors
from sparring.player.worlds import add_world_tools


class PolicyModel(RunModel):
    """An SDK model that samples from a policy: `Agent(model=PolicyModel(policy, sampling))`.

    It answers for every agent of the run and adds the tools of the run's context to each agent's
    own. As in training, a turn continues the exact tokens of the previous turn. An agent's model
    settings, such as its temperature, override `sampling`.
    """

    def __init__(self, policy: TokenPolicy, sampling: Sampling, seed: int | None = None) -> None:
        self._policy = policy
        self._sampling = sampling
        self._seed = secrets.randbits(31) if seed is None else seed
        self._turns = 0
        self._first_tag = secrets.randbits(
            48
        )  # random, so that items from another process do not match a turn
        unlimited = Limits(completion_tokens=sys.maxsize)
        self._recorder = Recorder(
            policy, Episode(RolloutKey(self._seed, 0, "", 0), Case("", ""), unlimited)
        )
        self._tagged = TaggedTurns()
        self._errors = ToolErrors()
        route_nested_runs()

    def run_config(self, given: RunConfig | None) -> RunConfig:
        """Return a copy of `given`, or a new run config, that uses this model."""
        config = copy.copy(given) if given is not None else RunConfig()
        config.model = self
        config.tool_not_found_behavior = "return_error_to_model"
        config.call_model_input_filter = recording_active_agent(config.call_model_input_filter)
        config.tool_error_formatter = self._errors.formatter(config.tool_error_formatter)
        return config

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: Any,  # noqa: ARG002
        **_: Any,
    ) -> ModelResponse:
        """Sample one turn and return it as a ModelResponse."""
        active = ACTIVE_AGENT.get()
        add_world_tools(tools, active.context)
        prompt = prompt_of(system_instructions, input, tools, output_schema, handoffs)
        call = prompt.call(
            forced_tool(model_settings, prompt.tool_names),
            is_parallel=model_settings.parallel_tool_calls,
            continues=self._tagged.continued_by(prompt),
        )
        self._turns += 1
        turn = self._recorder.begin(self._turns, active.agent, call)
        key = SampleKey(RolloutKey(self._seed, 0, "", turn.number), turn.number)
        sampling = sampling_for(model_settings, self._sampling)
        self._policy.join()
        try:
            answer = await self._recorder.answer(turn, key, call, sampling)
        finally:
            self._policy.leave()
        calls = [
            RequestedCall(f"call_{secrets.token_hex(8)}", call.tool, call.arguments)
            for call in answer.reply.calls
        ]
        self._errors.remember(calls, prompt.tools)
        tag = self._first_tag + turn.number
        return self._tagged.response(tag, turn, prompt, answer, calls)
