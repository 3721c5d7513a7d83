"""A policy as a model of the SDK: the trained weights, back in the agent that is shipped."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from typing import Any

from agents import AgentOutputSchemaBase, Handoff, Model, ModelResponse, ModelSettings, Tool, Usage
from agents.items import TResponseInputItem, TResponseStreamEvent

from sparring.contracts.policies import SampleKey, SampleRequest, Sampling, TokenPolicy
from sparring.contracts.rollouts import Message, RequestedCall, RolloutKey
from sparring.player.conversation import to_items, to_messages
from sparring.player.sdk_model import prompt_of
from sparring.player.voices import system_of


class PolicyModel(Model):
    """Answers with a token policy, turn by turn: `Agent(model=PolicyModel(policy))`.

    A model setting of the agent's own, such as its temperature, goes before `sampling`.
    """

    def __init__(self, policy: TokenPolicy, sampling: Sampling, seed: int | None = None) -> None:
        self._policy = policy
        self._sampling = sampling
        self._seed = secrets.randbits(31) if seed is None else seed
        self._turns = 0

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
        said = prompt_of(system_instructions, input, tools, output_schema, handoffs)
        messages = to_messages(said.items)
        if system := system_of(said):
            messages = [Message("system", system), *messages]
        encoded = self._policy.codec.encode_prompt(messages, said.tools)
        self._turns += 1
        key = SampleKey(RolloutKey(self._seed, 0, "", self._turns), self._turns)
        self._policy.join()
        try:
            sample = await self._policy.sample(
                SampleRequest(key, encoded.ids, self._sampling_for(model_settings))
            )
        finally:
            self._policy.leave()
        reply = self._policy.codec.parse(sample.ids)
        calls = [
            RequestedCall(f"call_{secrets.token_hex(8)}", call.tool, call.arguments)
            for call in reply.calls
        ]
        usage = Usage(
            requests=1,
            input_tokens=len(encoded.ids),
            output_tokens=len(sample.ids),
            total_tokens=len(encoded.ids) + len(sample.ids),
        )
        return ModelResponse(to_items(reply, calls, self._turns), usage, response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise NotImplementedError("a policy answers without streaming; use Runner.run")

    def _sampling_for(self, settings: ModelSettings) -> Sampling:
        return Sampling(
            self._sampling.temperature if settings.temperature is None else settings.temperature,
            settings.max_tokens or self._sampling.max_tokens,
            self._sampling.repetition_penalty,
        )
