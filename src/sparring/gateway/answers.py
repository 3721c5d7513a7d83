"""Asks the policy for the reply to a model call, in tokens or in messages."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import (
    ChatPolicy,
    ChatRequest,
    Finish,
    Reply,
    Sample,
    SampleKey,
    SampleRequest,
    Sampling,
    TokenPolicy,
)
from sparring.contracts.rollouts import RequestedCall
from sparring.gateway.calls import FinishReason, ModelCall
from sparring.gateway.contexts import Context


@dataclass(frozen=True, slots=True)
class Sampled:
    """A parsed reply and its sampled tokens, which begin at `start` of the context."""

    reply: Reply
    finish: Finish
    prompt_tokens: int
    sampled_tokens: int
    sample: Sample
    start: int = 0


async def sample(
    policy: TokenPolicy, call: ModelCall, context: Context, key: SampleKey, sampling: Sampling
) -> Sampled:
    """Sample a reply, and append its tokens to the context.

    Raises InfrastructureError unless every token has a log-probability.
    """
    sampled = await policy.sample(SampleRequest(key, context.tokens, sampling))
    if not sampled.ids or len(sampled.ids) != len(sampled.logprobs):
        raise InfrastructureError(
            f"the policy returned {len(sampled.ids)} tokens with {len(sampled.logprobs)} "
            "log-probabilities; each sampled token needs one"
        )
    start = len(context.tokens)
    context.tokens.extend(sampled.ids)
    reply = policy.codec.parse(context.opening + sampled.ids, call.tools)
    return Sampled(reply, sampled.finish, start, len(sampled.ids), sampled, start)


async def ask(policy: ChatPolicy, call: ModelCall, key: SampleKey, sampling: Sampling) -> Sampled:
    """Ask a chat policy, whose reply has no tokens."""
    answer = await policy.reply(
        ChatRequest(
            key,
            call.messages,
            call.tools,
            sampling,
            call.output_schema,
            call.tool_choice,
            call.parallel_tool_calls,
        )
    )
    nothing = Sample(array("i"), array("f"), answer.finish)
    return Sampled(
        answer.reply, answer.finish, answer.prompt_tokens, answer.sampled_tokens, nothing
    )


def first_stop(text: str, stops: tuple[str, ...]) -> str:
    """Return the stop sequence that comes first in the text; empty if it contains none."""
    found = [stop for stop in stops if stop and stop in text]
    return min(found, key=text.find, default="")


def finish_reason(calls: tuple[RequestedCall, ...], *, is_cut_off: bool) -> FinishReason:
    """Return the finish reason of a reply. A reply that was cut off has no other."""
    if is_cut_off:
        return FinishReason.LENGTH
    return FinishReason.TOOL_CALLS if calls else FinishReason.STOP
