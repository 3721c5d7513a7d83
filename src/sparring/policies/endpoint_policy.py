"""A policy for models behind OpenAI-compatible chat servers, such as OpenRouter or Ollama."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from sparring.contracts.chat import chat_message
from sparring.contracts.errors import EndpointError, InvalidInput
from sparring.contracts.json import JsonObject
from sparring.contracts.policies import ChatReply, ChatRequest, Finish, ParsedCall, Reply, SampleKey
from sparring.contracts.rollouts import clean_text
from sparring.contracts.specs import EndpointSpec
from sparring.endpoints import EndpointClient
from sparring.policies.codec import split_thinking


class EndpointPolicy:
    """Samples from one or several weighted endpoints.

    The seed of a turn determines its endpoint. Failed requests (429, 5xx, broken connections) are
    retried, after the delay in Retry-After if the server sends one. If the endpoint still fails,
    the next is tried; if all fail, the last failure is raised.
    """

    def __init__(
        self,
        endpoints: Sequence[EndpointSpec],
        *,
        retries: int = 5,
        seconds: float = 120.0,
    ) -> None:
        if not endpoints:
            raise InvalidInput(
                "an endpoint policy needs at least one endpoint: pass --endpoint URL"
            )
        self.name = ", ".join(dict.fromkeys(endpoint.model for endpoint in endpoints))
        self._endpoints = tuple(endpoints)
        self._clients = [
            EndpointClient(endpoint, retries=retries, seconds=seconds) for endpoint in endpoints
        ]

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Return the reply of the first endpoint that answers."""
        *others, last = self._order(request.key)
        for number in others:
            with contextlib.suppress(EndpointError):
                return await self._request(number, request)
        return await self._request(last, request)

    async def ask_once(self) -> None:
        """Ask every endpoint for a few tokens, before rollouts are played. Raises EndpointError if
        one cannot answer."""
        for client in self._clients:
            await client.ask_once()

    def _order(self, key: SampleKey) -> list[int]:
        """Return the index of the endpoint that the seed picks, followed by all others."""
        total = sum(endpoint.weight for endpoint in self._endpoints)
        point = key.seed() / 2**63 * total
        picked = 0
        for number, endpoint in enumerate(self._endpoints):
            if point < endpoint.weight:
                picked = number
                break
            point -= endpoint.weight
        return [picked, *(number for number in range(len(self._endpoints)) if number != picked)]

    async def _request(self, number: int, request: ChatRequest) -> ChatReply:
        options: JsonObject = {}
        if request.tools:
            options["tools"] = [dict(tool) for tool in request.tools]
        if request.output_schema is not None:
            options["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "output", "schema": dict(request.output_schema)},
            }
        options |= _settings(request)
        completion = await self._clients[number].chat(
            model=self._endpoints[number].model,
            messages=[chat_message(message) for message in request.messages],
            temperature=request.sampling.temperature,
            max_tokens=request.sampling.max_tokens,
            seed=request.key.seed() % 2**31,
            **options,
        )
        choice, usage = completion.choices[0], completion.usage
        return ChatReply(
            reply=_reply(choice.message),
            finish=Finish.LENGTH if choice.finish_reason == "length" else Finish.STOP,
            prompt_tokens=usage.prompt_tokens if usage else 0,
            sampled_tokens=usage.completion_tokens if usage else 0,
        )


def _settings(request: ChatRequest) -> JsonObject:
    """Return the request options that the agent's model settings set. Options that are left out
    have the server's defaults."""
    sampling, options = request.sampling, JsonObject()
    if sampling.top_p != 1.0:
        options["top_p"] = sampling.top_p
    if sampling.frequency_penalty:
        options["frequency_penalty"] = sampling.frequency_penalty
    if sampling.presence_penalty:
        options["presence_penalty"] = sampling.presence_penalty
    if not request.tools:
        return options
    if request.tool_choice in ("auto", "none", "required"):
        options["tool_choice"] = request.tool_choice
    elif request.tool_choice:
        options["tool_choice"] = {"type": "function", "function": {"name": request.tool_choice}}
    if request.parallel_tool_calls is not None:
        options["parallel_tool_calls"] = request.parallel_tool_calls
    return options


def _reply(message: Any) -> Reply:
    content = clean_text(message.content or "")
    text, thinking = split_thinking(content, "<think>", "</think>")
    thinking = thinking or clean_text(getattr(message, "reasoning_content", None) or "")
    calls: list[ParsedCall] = []
    for call in message.tool_calls or ():
        name, arguments = clean_text(call.function.name), call.function.arguments or "{}"
        try:
            value = json.loads(arguments)
            if not isinstance(value, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as error:
            full_text = clean_text(f"{text}\n{name}({arguments})")
            return Reply(full_text, thinking, malformed=f"the arguments of {name}: {error}")
        calls.append(ParsedCall(name, clean_text(json.dumps(value, ensure_ascii=False))))
    return Reply(text, thinking, tuple(calls))
