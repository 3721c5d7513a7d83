"""Users in the loop: a function that answers the agent's messages, as a person would."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sparring.contracts.cases import Case
from sparring.contracts.errors import InfrastructureError
from sparring.contracts.rollouts import Message
from sparring.player.deadlines import Deadlines

UserFunction = Callable[[Case, Any, Sequence[Message]], "Awaitable[str | None] | str | None"]


async def user_message(
    user: UserFunction,
    case: Case,
    world: Any,
    conversation: Sequence[Message],
    *,
    deadlines: Deadlines,
    seconds: float,
) -> str | None:
    """Return the user's next message; None ends the conversation.

    A synchronous function runs in a thread. Raises InfrastructureError if the function takes
    longer than `seconds` or returns anything but text or None: neither is the model's fault.
    """
    try:
        async with deadlines.within(seconds) as deadline:
            if inspect.iscoroutinefunction(user):
                message = await user(case, world, conversation)
            else:
                message = await asyncio.to_thread(user, case, world, conversation)
                if inspect.isawaitable(message):
                    message = await message
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise InfrastructureError(f"user() did not answer within {seconds:g} s") from error
    if message is not None and not isinstance(message, str):
        raise InfrastructureError(
            f"user() returned a {type(message).__name__}; return the user's message, or None to "
            "end the conversation"
        )
    return message
