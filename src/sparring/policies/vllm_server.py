"""One vLLM server: a client, which samples from token ids and loads adapters and whole weights, and
the policy of a server that somebody else runs.

The server must run with `--logprobs-mode processed_logprobs`, so that it returns log-probabilities
of the temperature-scaled softmax.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from http import HTTPStatus
from typing import Any

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import Finish, PublishedWeights, Sample, SampleRequest
from sparring.contracts.specs import EndpointSpec
from sparring.policies.codec import ChatCodec
from sparring.policies.families import Family
from sparring.policies.json_http import ConnectionBroken, JsonHttp, JsonReply
from sparring.secrets import read_key

_WAIT_SECONDS = 120.0
_RETRY_SECONDS = 0.5
_CONTROL_SECONDS = 300.0
_UNAVAILABLE = frozenset({408, 429, 500, 502, 503, 504})


class ServerUnavailable(InfrastructureError):
    """The server cannot be reached, is overloaded or failed (5xx); a retry may succeed, on this
    server or on another."""


class ModelNotServed(InfrastructureError):
    """The server does not have the model that the request names."""


class VllmServer:
    """Sends requests to one server. `address` is `http://HOST:PORT`, with or without `/v1`;
    `seconds` limits the time of one sample."""

    def __init__(self, address: str, *, key: str | None = None, seconds: float = 600.0) -> None:
        self.address = address.rstrip("/").removesuffix("/v1")
        self._http = JsonHttp(self.address, key=key)
        self._has_key = key is not None
        self._seconds = seconds
        self._has_whole: tuple[str, int] | None = None
        self._base = ""

    async def complete(
        self, model: str, request: SampleRequest, stop_ids: list[int], *, salt: str = ""
    ) -> Sample:
        """Sample from `model`. `salt` is the salt of the prefix cache.

        Raises ModelNotServed if the server does not have the model, ServerUnavailable if a retry
        may succeed, and InfrastructureError otherwise.
        """
        sampling = request.sampling
        body = {
            "model": model,
            "prompt": request.prompt.tolist(),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": sampling.repetition_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "presence_penalty": sampling.presence_penalty,
            "seed": request.key.seed(),
            "logprobs": 0,
            "return_token_ids": True,
            "stop_token_ids": stop_ids,
        }
        if salt:
            body["cache_salt"] = salt
        reply = await self._post("/v1/completions", body, self._seconds)
        if reply.status == 404:
            raise ModelNotServed(f"{self.address} does not serve {model}: {reply.excerpt()}")
        if not reply.is_ok:
            raise InfrastructureError(
                f"{self.address} returned no sample: {reply.status} {reply.excerpt()}"
            )
        return self._sample(reply)

    async def load_adapter(self, weights: PublishedWeights) -> None:
        """Load an adapter from its folder, which the server must be able to read at the same
        path."""
        body = {"lora_name": weights.name, "lora_path": weights.path}
        reply = await self._post("/v1/load_lora_adapter", body, _CONTROL_SECONDS)
        if reply.is_ok or b"already" in reply.body:
            return
        raise InfrastructureError(
            f"{self.address} cannot load the adapter {weights.path}: {reply.status} "
            f"{reply.excerpt()}. Start the server with --enable-lora and "
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, on a host that sees this folder"
        )

    async def load_whole(self, weights: PublishedWeights) -> str:
        """Load whole weights into the server unless it has them; return the name of its model.

        A new connection may mean that the server was restarted with its original weights, so its
        weight version is then read again.
        """
        if self._has_whole == (weights.name, self._http.connections):
            return self._base
        self._base = await self.base_model()
        info = await self._control("GET", "/weight_info")
        if str((info or {}).get("weight_version", "")) != weights.name:
            kwargs = {"weights_path": weights.path}
            await self._control("POST", "/pause?mode=keep")
            try:
                call = {"method": "reload_weights", "kwargs": kwargs}
                await self._control("POST", "/collective_rpc", call)
                await self._control("POST", "/reset_prefix_cache")
                version = {"new_version": weights.name}
                await self._control("POST", "/update_weight_version", version)
            finally:
                await self._control("POST", "/resume")
        self._has_whole = (weights.name, self._http.connections)
        return self._base

    async def base_model(self) -> str:
        """Return the name of the model that the server was started with."""
        models = (await self._control("GET", "/v1/models") or {}).get("data", [])
        bases = [each["id"] for each in models if not each.get("parent")]
        if not bases:
            raise InfrastructureError(f"{self.address} lists no model; it must be a vLLM server")
        return str(bases[0])

    async def version(self) -> str:
        """Return the version of vLLM that the server runs."""
        return str((await self._control("GET", "/version") or {}).get("version", "unknown"))

    async def is_ready(self) -> bool:
        """Return whether the server passes its health check."""
        try:
            return (await self._http.get("/health", 5.0)).is_ok
        except ConnectionBroken:
            return False

    async def _control(self, method: str, path: str, body: Any = None) -> Any:
        try:
            if method == "GET":
                reply = await self._http.get(path, _CONTROL_SECONDS)
            else:
                reply = await self._http.post(path, body or {}, _CONTROL_SECONDS)
        except ConnectionBroken as error:
            raise ServerUnavailable(f"{self.address}{path}: {error}") from error
        if not reply.is_ok:
            raise InfrastructureError(
                f"{self.address}{path} returned {reply.status} {reply.excerpt()}. Use a vLLM "
                "server; to load whole weights, start it with VLLM_SERVER_DEV_MODE=1"
            )
        return reply.json()

    async def _post(self, path: str, body: Any, seconds: float) -> JsonReply:
        try:
            reply = await self._http.post(path, body, seconds)
        except ConnectionBroken as error:
            raise ServerUnavailable(f"{self.address}: {error}") from error
        if reply.status in _UNAVAILABLE:
            raise ServerUnavailable(f"{self.address}: {reply.status} {reply.excerpt()}")
        if reply.status == HTTPStatus.UNAUTHORIZED and not self._has_key:
            raise InfrastructureError(
                f"{self.address} requires a key: name the environment variable that holds it with "
                "--key-variable, or with key_variable in Python"
            )
        return reply

    def _sample(self, reply: JsonReply) -> Sample:
        value = reply.json()
        choices = value.get("choices") if isinstance(value, dict) else None
        choice = choices[0] if choices else {}
        ids = choice.get("token_ids")
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
        if not ids or logprobs is None or len(logprobs) != len(ids):
            raise InfrastructureError(
                f"{self.address} returns no token ids; it must be a vLLM server of version 0.10 "
                "or later, which supports return_token_ids"
            )
        finish = Finish.STOP if choice.get("finish_reason") == "stop" else Finish.LENGTH
        return Sample(array("i", ids), array("f", logprobs), finish)


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
