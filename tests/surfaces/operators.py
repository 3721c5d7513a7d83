"""`sparring mcp` in a process of its own, and the official client at the other end of it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

ROOT = Path(__file__).resolve().parents[2]


class Operator:
    """What an agent does with a client: call tools, wait for runs."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **given: Any) -> dict[str, Any]:
        """An answer that is no refusal."""
        told = await self.ask(tool, given)
        assert not isinstance(told.get("error"), dict), told
        return told

    async def refused(self, tool: str, **given: Any) -> dict[str, Any]:
        told = await self.ask(tool, given)
        assert isinstance(told.get("error"), dict), (
            f"{tool} {given} was not refused: {str(told)[:300]}"
        )
        error: dict[str, Any] = told["error"]
        return error

    async def ask(self, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        result = await self.client.call_tool(tool, given)
        text = result.content[0].text  # type: ignore[union-attr]
        assert json.loads(text) == result.structured_content
        if given.get("detail") != "full":
            assert len(text) < 4_000, f"{tool} says {len(text)} characters"
        assert result.is_error == isinstance(result.structured_content.get("error"), dict)
        return dict(result.structured_content)

    async def end_of(self, run: str) -> dict[str, Any]:
        """Its last news, by waiting for it."""
        since = 0
        while True:
            news = await self.call("wait_for_run", run=run, since=since, timeout=45)
            if news["has_ended"]:
                return news
            assert news["news"], "45 seconds passed without news"
            since = news["cursor"]


@asynccontextmanager
async def operator(
    project: Path, name: str = "coach", role: str = "operator"
) -> AsyncIterator[Operator]:
    options = ["--project", str(project), "--as", name, "--role", role]
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "sparring", "mcp", *options],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    async with Client(server) as client:
        yield Operator(client)
