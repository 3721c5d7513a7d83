"""Derives a call's branch from its messages, so that its seed does not depend on timing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile

from sparring.contracts.cases import Case
from sparring.contracts.errors import SparringError
from sparring.contracts.rollouts import Message, RequestedCall
from sparring.gateway.calls import ModelCall, digest
from sparring.gateway.message_tree import SampledReply, canonical
from sparring.player.conversation import to_messages


def branch_of(
    call: ModelCall,
    base: SampledReply | None,
    after: Sequence[Message],
    case: Case,
    repeats: int,
) -> str:
    """Return the name of the branch that a call belongs to.

    The name is empty for a conversation that starts with the case's messages and never branches, so
    that its seeds equal those of the same agent on the SDK. `after` are the messages since `base`,
    the last sampled turn, or all if there is none; `repeats` is the number of earlier equal calls.
    """
    if base is None:
        is_plain = [_plain(message) for message in after] == _case_messages(case)
        branch = "" if is_plain else digest(call.frame, *map(repr, after))
    else:
        is_plain = _answers(after, base.calls)
        branch = base.branch if is_plain else digest(base.branch, *map(repr, after))
    return f"{branch}#{repeats}" if repeats else branch


def _case_messages(case: Case) -> list[Message] | None:
    """Return the case's messages after its system messages, which belong to a call's frame."""
    given = case.input
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    try:
        messages = [_plain(message) for message in to_messages(items)]
        return list(dropwhile(lambda message: message.role == "system", messages))
    except (SparringError, KeyError):
        return None


def _plain(message: Message) -> Message:
    """Return the message without agent and thinking, and with canonical arguments."""
    calls = tuple(
        RequestedCall(call.id, call.tool, canonical(call.arguments)) for call in message.calls
    )
    return Message(message.role, message.content, calls=calls, call_id=message.call_id)


def _answers(messages: Sequence[Message], calls: Sequence[RequestedCall]) -> bool:
    """Return whether the messages continue a turn without a branch: the results of its calls in
    order or, after a turn without calls, one user message."""
    if calls:
        return [message.call_id for message in messages] == [call.id for call in calls]
    return [message.role for message in messages] == ["user"]
