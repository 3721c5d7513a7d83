"""A policy for a vLLM server that samples by token ids.

Start the server with `--logprobs-mode processed_logprobs`, so that it returns log-probabilities of
the temperature-scaled softmax. This process loads the tokenizer, from the same model.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import Sample, SampleRequest
from sparring.contracts.specs import EndpointSpec
from sparring.policies.codec import ChatCodec
from sparring.policies.families import Family
from sparring.policies.pretrained import load_tokenizer
from sparring.policies.recognition import recognise
from sparring.policies.vllm_server import ServerUnavailable, VllmServer
from sparring.secrets import read_key

_WAIT_SECONDS = 120.0
_RETRY_SECONDS = 0.5


class VllmPolicy:
    """Samples from one vLLM server. Requests are sent immediately; the server batches them."""

    samples_in_lockstep = False

    def __init__(self, endpoint: EndpointSpec, tokenizer: Any, family: Family) -> None:
        self.name = endpoint.model
        self.codec = ChatCodec(tokenizer, family)
        self._stop_ids = sorted(self.codec.stop_ids)
        key = read_key(endpoint.key_variable)
        self._server = VllmServer(
            endpoint.base_url, key=key.get_secret_value() if key else None, seconds=600.0
        )

    @classmethod
    def load(
        cls, endpoint: EndpointSpec, model: str, *, family: Family | None = None
    ) -> VllmPolicy:
        """Load the tokenizer of `model` (a name or a folder) for the server at `endpoint`."""
        tokenizer = load_tokenizer(model)
        if family is None:
            family = recognise(tokenizer)
        return cls(endpoint, tokenizer, family)

    def join(self) -> None:
        """Do nothing: the server batches requests."""

    def leave(self) -> None:
        """Do nothing: the server batches requests."""

    async def sample(self, request: SampleRequest) -> Sample:
        """Return the server's sample. An unavailable server is retried for 120 s, then
        InfrastructureError is raised."""
        give_up_at = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                sample = await self._server.complete(self.name, request, self._stop_ids)
            except ServerUnavailable as error:
                if time.monotonic() > give_up_at:
                    raise InfrastructureError(
                        f"{error}; the vLLM server did not answer for {_WAIT_SECONDS:g} s: check "
                        "its address and its log"
                    ) from error
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return sample
