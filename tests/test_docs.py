"""Code in the documentation works: Python is run, commands are parsed, TOML is read.

A block that cannot be run stands behind a comment that says why: `<!-- not run: reason -->`.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from sparring.settings.project_file import parse, read_project_file
from sparring.surfaces.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n)?```(\w+)\n(.*?)```", re.DOTALL)


def blocks(language: str) -> list[Any]:
    return [
        pytest.param(page, text, id=f"{page.name}-{number}")
        for page in PAGES
        for number, (marked, name, text) in enumerate(BLOCK.findall(page.read_text()))
        if name == language and not marked
    ]


def names_in_scope() -> dict[str, Any]:
    """What a reader has imported by then."""
    import agents
    import pydantic

    import sparring

    scope: dict[str, Any] = {name: getattr(sparring, name) for name in sparring.__all__}
    from sparring import measures

    scope |= {name: getattr(measures, name) for name in measures.__all__}
    scope |= {"Agent": agents.Agent, "function_tool": agents.function_tool, "json": json}
    scope |= {"Field": pydantic.Field, "HOURS": {}, "STOCK": {}, "__name__": "docs"}

    @sparring.measure
    def says_the_hours(rollout: sparring.Rollout) -> sparring.Verdict:
        return sparring.passed("yes") if rollout.answer else sparring.failed("no answer")

    return scope | {"says_the_hours": says_the_hours}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_runs(page: Path) -> None:
    scope = names_in_scope()
    for marked, language, text in BLOCK.findall(page.read_text()):
        if language == "python" and not marked:
            exec(compile(text, str(page), "exec"), scope)
    for name, thing in list(scope.items()):
        if name.startswith("test_"):
            thing()


def commands() -> list[Any]:
    found = []
    for page, text in (each.values for each in blocks("bash")):
        for line in text.replace("\\\n", " ").splitlines():
            line = line.split("  #")[0].strip()
            if line.startswith("sparring "):
                found.append(pytest.param(line, id=f"{page.name}: {line[:60]}"))
    return found


@pytest.mark.parametrize("line", commands())
def test_commands_exist_with_their_options(line: str) -> None:
    command: Any = typer.main.get_command(app)
    arguments = shlex.split(line)[1:]
    while hasattr(command, "commands") and not arguments[0].startswith("-"):
        name = arguments.pop(0)
        assert name in command.commands
        command = command.commands[name]
    known = {option for each in command.params for option in each.opts} | {"--help"}
    for argument in arguments:
        if argument.startswith("--"):
            assert argument.split("=")[0] in known


@pytest.mark.parametrize(("page", "text"), blocks("toml"))
def test_project_files_are_read(page: Path, text: str) -> None:
    read_project_file(parse(text, page.name))


def test_the_first_screen_of_the_readme_says_what_one_gets_and_when_to_take_something_else():
    lines = (ROOT / "README.md").read_text().splitlines()[:40]
    screen = "\n".join(lines)
    assert "pip install" in screen
    assert re.search(r"from \*\*0\.\d+ to 0\.\d+\*\*", screen)  # before and after, in words
    assert re.search(r"[\d.]+ GB of memory and [\d.]+ GB of disk", screen)
    for other in ("TRL", "Unsloth", "ART", "verl", "prime-rl"):
        assert any(line.startswith("|") and other in line for line in lines)
