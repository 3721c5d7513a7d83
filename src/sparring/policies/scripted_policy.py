"""A policy that says what a script tells it, through real tokens.

For demonstrations, and for tests of environments, tools and measures: everything but the model
is the real thing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from sparring.contracts.policies import Finish, Sample, SampleRequest
from sparring.contracts.rollouts import Message
from sparring.policies.codec import ChatCodec

Script = Callable[[SampleRequest], str | Message]


class ScriptedPolicy:
    """Calls `script` with each request and samples the tokens of what it returns: a text as it
    is, or a message as the family writes it."""

    plays_in_waves = False

    def __init__(self, script: Script, codec: ChatCodec, name: str = "scripted") -> None:
        self.name = name
        self.codec = codec
        self._script = script
        self._backend = codec.tokenizer.backend_tokenizer

    def join(self) -> None:
        """Nothing waits for anything."""

    def leave(self) -> None:
        """Nothing waits for anything."""

    async def sample(self, request: SampleRequest) -> Sample:
        said = self._script(request)
        ids = self._written(said) if isinstance(said, str) else self.codec.encode_reply(said)
        finish = Finish.STOP
        if len(ids) > request.sampling.max_tokens:
            ids, finish = ids[: request.sampling.max_tokens], Finish.LENGTH
        return Sample(ids, array("f", bytes(4 * len(ids))), finish)

    def _written(self, text: str) -> array[int]:
        ids = array("i", self._backend.encode(text, add_special_tokens=False).ids)
        ids.append(self.codec.end_of_turn)
        return ids
