"""Agents that are services: a request per rollout, which answers when the rollout is over."""

from __future__ import annotations

from typing import Any

import httpx

from sparring.contracts.errors import InfrastructureError
from sparring.gateway.case_files import case_record, session_record
from sparring.gateway.sessions import Session

_CONNECT_SECONDS = 10.0


class RemoteProgram:
    """Posts `{"case": …, "session": …}` to `url`, and reads `{"answer": …}` from the response. A
    body that is not a JSON object is the answer itself. The rollout's deadline limits the wait."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def run(self, session: Session) -> Any:
        """Send the case and the session, and wait for the answer."""
        request = {"case": case_record(session.case), "session": session_record(session)}
        timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)
        try:
            async with httpx.AsyncClient(timeout=timeout, trust_env=False) as client:
                response = await client.post(self._url, json=request)
        except httpx.HTTPError as error:
            problem = f"{type(error).__name__}: {error}"
            raise InfrastructureError(
                f"no answer from {self._url}: {problem}; start the agent's service, or correct url"
            ) from error
        if response.status_code != 200:
            raise InfrastructureError(
                f"{self._url} answered with status {response.status_code}: {response.text[:500]}"
            )
        try:
            body = response.json()
        except ValueError:
            return response.text
        return body.get("answer") if isinstance(body, dict) else body

    async def close(self) -> None:
        """Do nothing: the service is the user's."""
