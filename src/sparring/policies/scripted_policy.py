"""A policy whose replies come from a function, encoded as tokens of a real tokenizer.

For demonstrations, and for tests of environments, tools and measures without a model.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from sparring.contracts.policies import Finish, Sample, SampleRequest
from sparring.contracts.rollouts import Message
from sparring.policies.codec import ChatCodec

Script = Callable[[SampleRequest], str | Message]


class ScriptedPolicy:
    """Calls `script` with each request and returns its reply as a sample. Text is encoded
    unchanged, a Message in the family's format. All log-probabilities are 0."""

    samples_in_lockstep = False

    def __init__(self, script: Script, codec: ChatCodec, name: str = "scripted") -> None:
        self.name = name
        self.codec = codec
        self._script = script
        self._backend = codec.tokenizer.backend_tokenizer

    def join(self) -> None:
        """Do nothing: requests are not batched."""

    def leave(self) -> None:
        """Do nothing: requests are not batched."""

    async def sample(self, request: SampleRequest) -> Sample:
        """Return the script's reply, truncated at the request's token limit."""
        reply = self._script(request)
        ids = self._encode(reply) if isinstance(reply, str) else self.codec.encode_reply(reply)
        finish = Finish.STOP
        if len(ids) > request.sampling.max_tokens:
            ids, finish = ids[: request.sampling.max_tokens], Finish.LENGTH
        return Sample(ids, array("f", bytes(4 * len(ids))), finish)

    def _encode(self, text: str) -> array[int]:
        ids = array("i", self._backend.encode(text, add_special_tokens=False).ids)
        ids.append(self.codec.end_of_turn)
        return ids
