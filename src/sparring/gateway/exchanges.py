"""Pending and answered calls, so that a repeated call gets the earlier reply."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sparring.gateway.calls import ModelReply, Refused
from sparring.player.recorder import ModelCall


@dataclass(slots=True, eq=False)
class Exchange:
    """One call and its reply. `number` is the number of earlier exchanges for equal calls.

    `retry_keys` holds the idempotency keys of the call and its repeats. `is_delivered` is set if
    the client is still connected when the response starts.
    """

    number: int
    task: asyncio.Task[ModelReply]
    retry_keys: frozenset[str] = frozenset()
    is_delivered: bool = False

    def answers(self, call: ModelCall) -> bool:
        """Return whether an equal call gets this reply instead of a new one.

        It does if the client marks it as a retry, if it has a known idempotency key, or if it has
        no key and this reply is pending or undelivered. The reply of a failed call is never reused.
        """
        if self.task.done() and (self.task.cancelled() or self.task.exception() is not None):
            return False
        if call.is_retry or call.retry_key in self.retry_keys:
            return True
        return not self.is_delivered and not call.retry_key

    def reply(self) -> ModelReply:
        """Return the reply of a finished call; raises Refused if the call failed."""
        if self.task.cancelled():
            raise Refused(410, "this rollout has ended; its session takes no more calls")
        return self.task.result()
