"""Agents that are services: one HTTP request per rollout, answered when the agent is done."""

from __future__ import annotations

import asyncio
import random
import ssl
from functools import cache
from typing import Any

import httpx2

from sparring.contracts.errors import InfrastructureError
from sparring.gateway.sessions import Session, case_record, session_record

_CONNECT_SECONDS = 10.0
# In a burst of rollouts, a service with a short backlog resets connections.
_RETRIES, _PAUSE_SECONDS = 5, 0.2
_BROKEN = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)


class RemoteProgram:
    """Posts `{"case": …, "session": …}` to `url`, and reads `{"answer": …}` or `{"error": …}` from
    the response.

    A body that is not a JSON object is the answer itself. The rollout's deadline limits the wait.
    If a connection breaks before the agent has called the model, the request is sent again, up to
    five times.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    async def run(self, session: Session) -> Any:
        """Send the case and the session, and return the answer."""
        request = {"case": case_record(session.case), "session": session_record(session)}
        response = await self._post(request, session)
        if response.status_code != 200:
            raise InfrastructureError(
                f"{self._url} answered with status {response.status_code}: {response.text[:500]}"
            )
        try:
            body = response.json()
        except ValueError:
            return response.text
        if not isinstance(body, dict):
            return body
        if body.get("error") is not None:
            raise InfrastructureError(f"the agent failed: {str(body['error'])[:500]}")
        return body.get("answer")

    async def _post(self, request: dict[str, Any], session: Session) -> httpx2.Response:
        timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
        pauses = [_PAUSE_SECONDS * 2**number for number in range(_RETRIES)]
        while True:
            try:
                async with httpx2.AsyncClient(
                    timeout=timeout, trust_env=False, verify=_tls()
                ) as client:
                    return await client.post(self._url, json=request)
            except httpx2.HTTPError as error:
                may_retry = bool(pauses) and isinstance(error, _BROKEN)
                if may_retry:
                    await asyncio.sleep(pauses.pop(0) * (1 + random.random()))  # noqa: S311
                if not may_retry or session.count_calls():
                    problem = f"{type(error).__name__}: {error}"
                    raise InfrastructureError(
                        f"no answer from {self._url}: {problem}; start the agent's service, or "
                        "correct `url`"
                    ) from error

    async def close(self) -> None:
        """Do nothing: the user starts and stops the service."""


@cache
def _tls() -> ssl.SSLContext:
    """The TLS context of all clients: creating one blocks the event loop for tens of
    milliseconds."""
    return httpx2.create_ssl_context(trust_env=False)
