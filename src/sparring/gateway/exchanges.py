"""Calls in progress and answered: a repeated call gets the reply of the first one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sparring.gateway.calls import ModelCall, ModelReply, Refused


@dataclass(slots=True, eq=False)
class Exchange:
    """One call and its reply. `number` counts earlier equal calls, each with its own reply.

    `is_delivered` is set when the client is still connected as the response starts.
    """

    number: int
    task: asyncio.Task[ModelReply]
    retry_keys: frozenset[str] = frozenset()
    is_delivered: bool = False

    def answers(self, call: ModelCall) -> bool:
        """Return whether the call repeats this one: the client marks it as a retry, or it has no
        idempotency key and this reply is pending or was not delivered."""
        if self.task.done() and (self.task.cancelled() or self.task.exception() is not None):
            return False
        if call.is_retry or call.retry_key in self.retry_keys:
            return True
        return not self.is_delivered and not call.retry_key

    def reply(self) -> ModelReply:
        """Return the reply of a call that is done; raises Refused if it has none."""
        if self.task.cancelled():
            raise Refused(410, "this rollout has ended; its session takes no more calls")
        return self.task.result()
