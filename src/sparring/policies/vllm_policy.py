"""A vLLM server, spoken to by token ids.

Start it with `--logprobs-mode processed_logprobs`, so that the log-probabilities are those
of the temperature-scaled softmax. The tokenizer is loaded here, from the same model.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from sparring.contracts.errors import MachineryFailure
from sparring.contracts.policies import Finish, Sample, SampleRequest
from sparring.contracts.specs import EndpointSpec
from sparring.endpoints import EndpointClient
from sparring.policies.codec import ChatCodec
from sparring.policies.families import Family, recognise
from sparring.policies.pretrained import load_tokenizer, model_type_of

if TYPE_CHECKING:
    from openai.types import Completion


class VllmPolicy:
    """Requests go out at once; the server makes the batches."""

    plays_in_waves = False

    def __init__(self, endpoint: EndpointSpec, tokenizer: Any, family: Family) -> None:
        self.name = endpoint.model
        self.codec = ChatCodec(tokenizer, family)
        self._endpoint = endpoint
        self._client = EndpointClient(endpoint)

    @classmethod
    def load(
        cls, endpoint: EndpointSpec, model: str, *, family: Family | None = None
    ) -> VllmPolicy:
        """The server at `endpoint`, with the tokenizer of `model` (a name or a folder)."""
        tokenizer = load_tokenizer(model)
        if family is None:
            family = recognise(model_type_of(model), tokenizer)
        return cls(endpoint, tokenizer, family)

    def join(self) -> None:
        """A server needs no head count."""

    def leave(self) -> None:
        """A server needs no head count."""

    async def sample(self, request: SampleRequest) -> Sample:
        from openai import APIError

        try:
            completion = await self._client.get().completions.create(
                model=self._endpoint.model,
                prompt=request.prompt.tolist(),
                max_tokens=request.sampling.max_tokens,
                temperature=request.sampling.temperature,
                top_p=1.0,
                seed=request.key.seed(),
                logprobs=0,
                extra_body={
                    "top_k": 0,
                    "min_p": 0.0,
                    "return_token_ids": True,
                    "stop_token_ids": sorted(self.codec.stop_ids),
                },
            )
        except APIError as error:
            raise MachineryFailure(
                f"{self._endpoint.base_url} gave no sample: {type(error).__name__}: {error}"
            ) from error
        return self._read(completion)

    def _read(self, completion: Completion) -> Sample:
        choice: Any = completion.choices[0]
        ids = getattr(choice, "token_ids", None)
        logprobs = choice.logprobs.token_logprobs if choice.logprobs else None
        if ids is None or logprobs is None:
            raise MachineryFailure(
                f"{self._endpoint.base_url} returns no token ids; it must be a vLLM server from "
                "0.10 on, asked with return_token_ids"
            )
        finish = Finish.STOP if choice.finish_reason == "stop" else Finish.LENGTH
        return Sample(array("i", ids), array("f", logprobs), finish)
