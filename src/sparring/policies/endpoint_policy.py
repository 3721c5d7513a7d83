"""Models behind OpenAI-compatible chat servers: OpenRouter, vLLM, llama.cpp, Ollama."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sparring.contracts.errors import InvalidInput, MachineryFailure
from sparring.contracts.policies import ChatReply, ChatRequest, Finish, ParsedCall, Reply, SampleKey
from sparring.contracts.rollouts import Message, clean_text
from sparring.contracts.specs import EndpointSpec
from sparring.endpoints import EndpointClient
from sparring.policies.codec import split_thinking


class EndpointPolicy:
    """One or several weighted endpoints.

    Which endpoint a turn goes to follows from its seed. A request is retried by the client
    (429, 5xx, broken connections, with the server's own pause); an endpoint that still
    fails is passed over for the next one, and the last failure is a machinery failure.
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
                "an endpoint policy needs at least one endpoint: give --endpoint URL"
            )
        self.name = ", ".join(dict.fromkeys(each.model for each in endpoints))
        self._endpoints = tuple(endpoints)
        self._clients = [
            EndpointClient(each, retries=retries, seconds=seconds) for each in endpoints
        ]

    async def reply(self, request: ChatRequest) -> ChatReply:
        from openai import APIError

        failure: Exception | None = None
        for number in self._order(request.key):
            try:
                return await self._ask(number, request)
            except APIError as error:
                failure = error
        where = ", ".join(each.base_url for each in self._endpoints)
        raise MachineryFailure(
            f"no reply from {where}: {type(failure).__name__}: {failure}. "
            "Check the address, the model's name and the key, or lower --in-flight"
        ) from failure

    def _order(self, key: SampleKey) -> list[int]:
        """The endpoint that the seed picks, then the others."""
        total = sum(each.weight for each in self._endpoints)
        place = key.seed() / 2**63 * total
        picked = 0
        for number, each in enumerate(self._endpoints):
            if place < each.weight:
                picked = number
                break
            place -= each.weight
        return [picked, *(number for number in range(len(self._endpoints)) if number != picked)]

    async def _ask(self, number: int, request: ChatRequest) -> ChatReply:
        options: dict[str, Any] = {}
        if request.tools:
            options["tools"] = [dict(tool) for tool in request.tools]
        if request.output_schema is not None:
            options["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "output", "schema": dict(request.output_schema)},
            }
        completion: Any = (
            await self._clients[number]
            .get()
            .chat.completions.create(
                model=self._endpoints[number].model,
                messages=[_chat_message(message) for message in request.messages],  # type: ignore[misc]
                temperature=request.sampling.temperature,
                max_tokens=request.sampling.max_tokens,
                seed=request.key.seed() % 2**31,
                **options,
            )
        )
        if not completion.choices:
            raise MachineryFailure(
                f"{self._endpoints[number].base_url} sent a reply without choices"
            )
        choice, usage = completion.choices[0], completion.usage
        return ChatReply(
            reply=_reply(choice.message),
            finish=Finish.LENGTH if choice.finish_reason == "length" else Finish.STOP,
            prompt_tokens=usage.prompt_tokens if usage else 0,
            sampled_tokens=usage.completion_tokens if usage else 0,
        )


def _chat_message(message: Message) -> Mapping[str, Any]:
    chat: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        chat["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.tool, "arguments": call.arguments},
            }
            for call in message.calls
        ]
    if message.role == "tool":
        chat["tool_call_id"] = message.call_id
    return chat


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
            said = clean_text(f"{text}\n{name}({arguments})")
            return Reply(said, thinking, malformed=f"the arguments of {name}: {error}")
        calls.append(ParsedCall(name, clean_text(json.dumps(value, ensure_ascii=False))))
    return Reply(text, thinking, tuple(calls))
