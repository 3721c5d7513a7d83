"""A chat policy for servers of shipped models, which counts unparsable tool calls as failures."""

from __future__ import annotations

from openai import APIStatusError

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import ChatReply, ChatRequest, Finish, Reply
from sparring.policies.endpoint_policy import EndpointPolicy

_SERVER_ERROR = 500


class ServedPolicy(EndpointPolicy):
    """Plays an artefact on its server. llama.cpp responds with status 500 if it cannot parse the
    model's tool call. This policy then returns a malformed reply, so that the rollout is scored."""

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Return the server's reply, or a malformed one if the server responds with status 500."""
        try:
            return await super().reply(request)
        except InfrastructureError as error:
            cause = error.__cause__
            if not isinstance(cause, APIStatusError) or cause.status_code != _SERVER_ERROR:
                raise
            return ChatReply(Reply("", malformed=str(cause)[:300]), Finish.STOP, 0, 0)
