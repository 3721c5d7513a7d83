"""A policy for a pool of vLLM servers that load new weights while they serve.

A sample depends on its key, its prompt and the version of the weights, not on the server that
draws it.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import PublishedWeights, Sample, SampleRequest
from sparring.contracts.rollouts import RolloutKey
from sparring.policies.codec import ChatCodec
from sparring.policies.families import Family
from sparring.policies.vllm_server import ModelNotServed, ServerUnavailable, VllmServer

_FIRST_BACKOFF, _MAX_BACKOFF = 0.5, 30.0  # seconds for which a failed server is tried last
_RETRY_SECONDS = 0.25
_PINNED_STEPS = 16


class ServerPolicy:
    """Samples from a pool of servers.

    All turns of a rollout use the weights assigned to it or, if none are assigned, those of its
    first turn. The rollouts of a case go to the same server, because its prefix cache then holds
    their prompt. If a server fails, the next one is tried. If no server answers for `wait_seconds`,
    `sample` raises InfrastructureError.
    """

    samples_in_lockstep = False

    def __init__(
        self,
        addresses: Sequence[str] | Callable[[], Sequence[str]],
        tokenizer: Any,
        family: Family,
        *,
        name: str = "servers",
        key: str | None = None,
        wait_seconds: float = 600.0,
    ) -> None:
        """`addresses` is a list, or a function if servers come and go. `key` is the API key of the
        servers."""
        self.name = name
        self.codec = ChatCodec(tokenizer, family)
        self._addresses = addresses if callable(addresses) else lambda: addresses
        self._key = key
        self._known: dict[str, VllmServer] = {}
        self._stop_ids = sorted(self.codec.stop_ids)
        self._wait_seconds = wait_seconds
        self._current: PublishedWeights | None = None
        self._pinned: dict[RolloutKey, PublishedWeights] = {}
        self._assigned: dict[RolloutKey, list[PublishedWeights]] = {}
        self._backoff: dict[str, tuple[float, float]] = {}  # its end (monotonic), its seconds
        self._loading: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._loads: Counter[tuple[str, str]] = Counter()
        self.tokens_drawn = 0
        self.retries = 0
        self.version: int | None = None  # set by the trainer that updates the weights

    @property
    def servers(self) -> list[VllmServer]:
        """The current servers of the pool."""
        addresses = self._addresses()
        for address in addresses:
            if address not in self._known:
                self._known[address] = VllmServer(address, key=self._key)
        return [self._known[address] for address in addresses]

    def use(self, weights: PublishedWeights) -> None:
        """Use these weights for all rollouts that begin from now on."""
        self._current = weights
        self.version = weights.version
        oldest = weights.version - _PINNED_STEPS
        pinned = dict(self._pinned)  # another thread may be sampling
        self._pinned = {key: pin for key, pin in pinned.items() if pin.version > oldest}

    @contextmanager
    def assigned(self, weights: PublishedWeights, rollouts: Iterable[RolloutKey]) -> Iterator[None]:
        """Sample these rollouts with these weights inside the block, even if newer weights are
        published."""
        mine = list(rollouts)
        for rollout in mine:  # a list: a retried order may play a rollout twice at the same time
            self._assigned.setdefault(rollout, []).append(weights)
        try:
            yield
        finally:
            for rollout in mine:
                self._assigned[rollout].pop()
                if not self._assigned[rollout]:
                    del self._assigned[rollout]

    @property
    def weights(self) -> PublishedWeights:
        """The weights of rollouts that begin now."""
        return self._published()

    def join(self) -> None:
        """Do nothing: the servers batch requests."""

    def leave(self) -> None:
        """Do nothing: the servers batch requests."""

    async def sample(self, request: SampleRequest) -> Sample:
        """Return the sample of the first server that answers."""
        weights = self._weights_of(request.key.rollout)
        give_up_at = time.monotonic() + self._wait_seconds
        failure: ServerUnavailable | None = None
        while True:
            for server in self._order(request.key.rollout.case_id):
                try:
                    sample = await self._ask(server, request, weights)
                except ServerUnavailable as error:
                    self._note_failure(server)
                    failure = error
                else:
                    self._backoff.pop(server.address, None)
                    self.tokens_drawn += len(sample.ids)
                    return replace(sample, version=weights.version)
            if time.monotonic() > give_up_at:
                raise self._no_answer(failure) from failure
            await asyncio.sleep(_RETRY_SECONDS)

    async def sample_again(
        self, request: SampleRequest, *, salt: str = "", weights: PublishedWeights | None = None
    ) -> Sample:
        """Sample a request again, to diagnose a sample with wrong log-probabilities.

        The default for `weights` is the current weights. A new `salt` bypasses the prefix cache.
        """
        weights = weights or self._published()
        order = self._order(request.key.rollout.case_id)
        if not order:
            raise InfrastructureError("no sampling server is available")
        server = order[0]
        return await self._ask(server, request, weights, salt=salt)

    async def _ask(
        self,
        server: VllmServer,
        request: SampleRequest,
        weights: PublishedWeights,
        *,
        salt: str = "",
    ) -> Sample:
        if not weights.is_adapter:
            await self._load_once(server, weights)
            base = await server.load_whole(weights)
            return await server.complete(base, request, self._stop_ids, salt=salt or weights.name)
        place = (server.address, weights.name)
        loads = self._loads[place]
        try:
            return await server.complete(weights.name, request, self._stop_ids, salt=salt)
        except ModelNotServed:  # not loaded yet, or lost in a restart of the server
            if self._loads[place] == loads:  # else another request has loaded them since
                await self._load_once(server, weights)
            return await server.complete(weights.name, request, self._stop_ids, salt=salt)

    async def _load_once(self, server: VllmServer, weights: PublishedWeights) -> None:
        """Load weights into a server. Concurrent calls wait for the same load."""
        place = (server.address, weights.name)
        task = self._loading.get(place)
        if task is None:
            load = server.load_adapter if weights.is_adapter else server.load_whole
            task = self._loading[place] = asyncio.ensure_future(_nothing_of(load(weights)))
            task.add_done_callback(lambda done: self._note_load(place, done))
        await asyncio.shield(task)

    def _note_load(self, place: tuple[str, str], done: asyncio.Task[None]) -> None:
        del self._loading[place]
        if not done.cancelled() and done.exception() is None:
            self._loads[place] += 1

    def _published(self) -> PublishedWeights:
        if self._current is None:
            raise InfrastructureError(
                "no weights were published for the sampling servers; call `use` before sampling"
            )
        return self._current

    def _weights_of(self, rollout: RolloutKey) -> PublishedWeights:
        """Return the weights assigned to a rollout or, without any, those of its first turn."""
        if assigned := self._assigned.get(rollout):
            return assigned[-1]
        return self._pinned.setdefault(rollout, self._published())

    def _order(self, case_id: str) -> list[VllmServer]:
        """Return the servers in an order that depends on the case; servers in backoff come last."""
        now = time.monotonic()

        def rank(server: VllmServer) -> tuple[bool, bytes]:
            is_backoff = self._backoff.get(server.address, (0.0, 0.0))[0] > now
            place = hashlib.sha256(f"{case_id}\x1f{server.address}".encode()).digest()
            return is_backoff, place

        servers = self.servers
        return servers if len(servers) == 1 else sorted(servers, key=rank)

    def _no_answer(self, failure: ServerUnavailable | None) -> InfrastructureError:
        if failure is None:
            return InfrastructureError(
                f"no sampling server joined within {self._wait_seconds:g} s; start one on another "
                "host: sparring run join RUN --as server"
            )
        return InfrastructureError(
            f"none of {len(self.servers)} sampling servers answered within "
            f"{self._wait_seconds:g} s; the last failure: {failure}. See the servers' logs"
        )

    def _note_failure(self, server: VllmServer) -> None:
        self.retries += 1
        now = time.monotonic()
        until, last = self._backoff.get(server.address, (0.0, _FIRST_BACKOFF / 2))
        if now >= until:  # requests that fail during a backoff do not extend it
            seconds = min(2 * last, _MAX_BACKOFF)
            self._backoff[server.address] = (now + seconds, seconds)


async def _nothing_of(awaitable: Any) -> None:
    await awaitable
