"""`python by_folder.py FILE:TOOLS URL QUESTION …`, in a shipped folder: answers questions by the
first program of how_to_run.md, which reads agent.json, and prints a line of JSON for each.

FILE:TOOLS names the file with the tools and, with commas, their names. All else is the folder's.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def program() -> str:
    """The first Python program under "Your agent"."""
    text = Path("how_to_run.md").read_text().partition("## Your agent")[2]
    return text.partition("```python\n")[2].partition("```")[0]


def tools_of(target: str) -> dict[str, Callable[..., str]]:
    from sparring.player.tools import call_tool

    file, _, names = target.rpartition(":")
    spec = importlib.util.spec_from_file_location("shipped_tools", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def caller(tool: Any) -> Callable[..., str]:
        return lambda **arguments: asyncio.run(call_tool(tool, arguments))

    return {name: caller(getattr(module, name)) for name in names.split(",")}


def answer(lines: str, tools: dict[str, Any], question: str) -> dict[str, Any]:
    """Run the program on one question; return the answer and the calls that led to it."""
    names: dict[str, Any] = {"GIVEN": tools}
    code = lines.replace("TOOLS = {}", "TOOLS = GIVEN").replace('"YOUR QUESTION"', repr(question))
    with contextlib.redirect_stdout(io.StringIO()):  # the program prints the answer, too
        exec(code.replace("while True:", "for _ in range(4):"), names)
    calls = [
        {"tool": call["function"]["name"], "arguments": call["function"]["arguments"]}
        for message in names["messages"][len(names["shipped"]["examples"]) + 2 :]
        for call in message.get("tool_calls", ())
    ]
    return {"question": question, "answer": names["reply"].content or "", "calls": calls}


if __name__ == "__main__":
    target, url, *questions = sys.argv[1:]
    tools = tools_of(target)
    lines = re.sub(r"http://127\.0\.0\.1:\d+/v1", url, program())
    for question in questions:
        print(json.dumps(answer(lines, tools, question)), flush=True)
