"""How results are shown in a notebook, and the notebook of the docs, run cell by cell."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

from agents import Agent

from sparring.api.notebook import Line, as_html
from tests.api.small_talk import SmallTalk, shown_by

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api" / "index.md"


def cells() -> list[str]:
    section = PAGE.read_text().split("## In a notebook")[1].split("A result on the last line")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def test_what_a_run_says_cannot_become_markup():
    html = as_html("<b>", [("<script>", "a & b")], [Line("</svg>", [(1, 0.5)])])
    parsed = ElementTree.fromstring(f"<div>{html}</div>")
    assert parsed.find(".//tr/th").text == "<script>"
    assert not parsed.findall(".//script")


def test_without_points_there_is_no_picture():
    assert "<svg" not in as_html("trained", [], [Line("reward", [])])


def test_a_long_curve_stays_small_and_ends_with_its_last_point():
    points = [(step, step / 100_000) for step in range(100_001)]
    html = as_html("trained", [], [Line("reward", points)])
    drawn = re.search(r'points="([^"]+)"', html)[1].split()
    assert len(drawn) <= 402
    assert drawn[-1].startswith("456.0,")
    assert len(html) < 10_000


def test_the_notebook_of_the_docs_runs_cell_by_cell(tiny_folder, tmp_path, monkeypatch):
    class MyAgent(SmallTalk):
        def agent(self) -> Agent[Any]:
            return super().agent().clone(model=str(tiny_folder))

    module = ModuleType("my_agent")
    module.MyAgent = MyAgent  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_agent", module)
    monkeypatch.chdir(tmp_path)
    texts = cells()
    assert len(texts) == 4
    scope: dict[str, Any] = {}

    async def run_all() -> None:  # a notebook's cells run where an event loop does
        for text in texts:
            text = text.replace("max_steps=20", "max_steps=1").replace("lora=True)", "max_steps=1)")
            text = text.replace('forms=["merged"])', 'forms=["merged"], unproven=True)')
            code, _, last = text.rstrip().rpartition("\n")
            exec(code, scope)
            shown_by(eval(last, scope))

    asyncio.run(run_all())
    assert (tmp_path / "my-model" / "merged" / "config.json").is_file()
