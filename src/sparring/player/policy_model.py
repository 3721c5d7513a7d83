"""An SDK model that samples from a token policy, for running a trained agent."""

from __future__ import annotations

import copy
import secrets
from array import array
from collections import OrderedDict
from typing import Any

from agents import (
    AgentOutputSchemaBase,
    Handoff,
    ModelResponse,
    ModelSettings,
    RunConfig,
    Tool,
    Usage,
)
from agents.items import TResponseInputItem

from sparring.contracts.policies import SampleKey, SampleRequest, Sampling, TokenPolicy
from sparring.contracts.rollouts import Message, RequestedCall, RolloutKey
from sparring.player.conversation import to_items
from sparring.player.model_settings import forced_opening, sampling_for
from sparring.player.nested_runs import (
    ACTIVE_AGENT,
    RunModel,
    recording_active_agent,
    route_nested_runs,
)
from sparring.player.prompts import Prompt, prompt_of
from sparring.player.rows import GrowingRow, find_continued_row
from sparring.player.tool_errors import ToolErrors
from sparring.player.worlds import add_world_tools

_MAX_ROWS = 256


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
        )  # random, so that items from another process do not match a row
        self._rows: OrderedDict[int, GrowingRow] = OrderedDict()
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
        codec, active = self._policy.codec, ACTIVE_AGENT.get()
        add_world_tools(tools, active.context)
        prompt = prompt_of(system_instructions, input, tools, output_schema, handoffs)
        row = self._row(active.agent, prompt)
        opening = forced_opening(model_settings, prompt, codec)
        if opening:
            row.force(opening)
        prompt_tokens = len(row.ids)
        self._turns += 1
        turn = self._turns
        sample = await self._sample(turn, row.ids, sampling_for(model_settings, self._sampling))
        row.add_sample(sample)
        reply = codec.parse(opening + sample.ids, prompt.tools)
        if not codec.is_kept(reply, sample.ids):
            row.close()
        calls = [
            RequestedCall(f"call_{secrets.token_hex(8)}", call.tool, call.arguments)
            for call in reply.calls
        ]
        self._errors.remember(calls, prompt.tools)
        tag = self._first_tag + turn
        output = to_items(reply, calls, tag)
        row.note_reply(prompt.items, Message("assistant", reply.content, calls=tuple(calls)), tag)
        self._store_row(tag, row)
        usage = Usage(
            requests=1,
            input_tokens=prompt_tokens,
            output_tokens=len(sample.ids),
            total_tokens=prompt_tokens + len(sample.ids),
        )
        return ModelResponse(output, usage, response_id=None)

    async def _sample(self, turn: int, prompt: array[int], sampling: Sampling) -> Any:
        key = SampleKey(RolloutKey(self._seed, 0, "", turn), turn)
        self._policy.join()
        try:
            return await self._policy.sample(SampleRequest(key, prompt, sampling))
        finally:
            self._policy.leave()

    def _row(self, agent: str, prompt: Prompt) -> GrowingRow:
        """Return a copy of the row that this turn continues, or a new row. The original stays
        unchanged, because another conversation may continue from the same turn."""
        row = find_continued_row(list(self._rows.values()), prompt)
        if row is None:
            return GrowingRow(agent, prompt, self._policy.codec)
        continued = row.copy()
        continued.observe(prompt, self._policy.codec, lambda _: "")
        return continued

    def _store_row(self, tag: int, row: GrowingRow) -> None:
        self._rows[tag] = row
        while len(self._rows) > _MAX_ROWS:
            self._rows.popitem(last=False)
