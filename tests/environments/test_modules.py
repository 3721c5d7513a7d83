"""Environments without a class: the ten lines of the docs, and what a file may define."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparring import prove, ship, train
from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput
from sparring.contracts.kinds import AuditSpec
from sparring.environments import load_environment
from sparring.environments.task import Task, default_settings, read_task
from sparring.projects import find_project
from sparring.run_folder import RunFolder
from tests.jobs.run_here import run_here
from tests.training import TALKATIVE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "environments.md"
PARTS = """
from agents import Agent
from sparring import Suite
agent = Agent(name="a")
suite = Suite.from_records([{"input": str(n), "split": "training"} for n in range(20)])
measures = ["length"]
"""
Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes the file of an environment; returns its path. What loading imports is forgotten."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def written(source: str) -> str:
        (tmp_path / "sums.py").write_text(source)
        return str(tmp_path / "sums.py")

    yield written
    sys.modules.pop("sums", None)


@pytest.fixture
def ten_lines(write: Write) -> str:
    section = PAGE.read_text().split("## Ten lines")[1]
    (source,) = re.findall(r"```python\n(.*?)```", section.split("## ")[0], re.DOTALL)
    assert len([line for line in source.splitlines() if line.strip()]) == 10
    return write(source)


def test_the_ten_lines_of_the_docs_are_found_and_described(ten_lines, tmp_path):
    project = find_project(tmp_path)
    found = project.find("sums")
    assert (found.name, found.target) == ("sums", f"{ten_lines}:sums")
    assert found.description == "Adds two numbers."
    described = project.describe(found, is_owner=True)
    assert (described.error, described.measures) == ("", ("numeric",))


def test_the_ten_lines_of_the_docs_are_audited_as_a_run(ten_lines, tmp_path):
    folder = RunFolder(tmp_path / "audit-sums")
    folder.create(AuditSpec(target=f"{ten_lines}:sums").model_dump(mode="json"))
    run_here(folder)
    assert list(folder.path.glob("report/summary.json"))


def test_the_ten_lines_of_the_docs_are_trained_proved_and_shipped(ten_lines, tiny_folder, tmp_path):
    environment = load_environment(ten_lines)
    result = train(
        environment, model=str(tiny_folder), family=TALKATIVE, max_steps=1, cases_per_batch=2,
        max_completion_length=32, num_generations=2, validation_cases=0, replacement_groups=0,
        runs=tmp_path / "runs", show_progress=False,
    )  # fmt: skip
    assert result.run.startswith("sums-")
    proof = prove(result, cases=10, rollouts=1, show_progress=False)
    assert proof.summary.environment == "sums"
    shipped = ship(
        result, tmp_path / "model", unproven=True, forms=["merged"], cases=0, validation_cases=2,
        show_progress=False,
    )  # fmt: skip
    assert shipped.path == tmp_path / "model"


def test_every_part_may_be_a_function_of_the_file(write):
    file = write(
        PARTS.replace("agent =", "def agent():\n    return")
        + "settings = {'max_turns': 2}\nweights = {'length': 2}\n"
        + "def world(case):\n    return [case.id]\n"
        + "async def user(case, world, conversation):\n    return None\n"
    )
    environment = load_environment(f"{file}:sums")
    task = Task.of_environment(environment)
    case = next(task.suite.cases(Split.TRAINING, 1))
    assert (task.agent.name, task.context(case)) == ("a", [case.id])
    assert task.user is not None
    assert task.measures.weights == {"length": 2}
    assert read_task(environment, None, None).environment == "sums"


def test_an_agent_outside_the_sdk_is_a_function_of_the_file(write):
    source = PARTS.replace("agent = Agent", "_ = Agent")
    file = write(source + "async def play(case, session):\n    return 'x'\nmodel = 'tiny'\n")
    task = Task.of_environment(load_environment(file))
    assert (task.agent.name, task.agent.model) == ("sums", "tiny")


def test_two_agents_in_a_file_are_refused(write):
    file = write(PARTS + "url = 'http://127.0.0.1:1'\n")
    with pytest.raises(InvalidInput, match="sums declares agent and url"):
        Task.of_environment(load_environment(file))


def test_a_part_that_must_be_a_function_is_named(write):
    file = write(PARTS + "user = 'Ada'\n")
    with pytest.raises(InvalidInput, match=r"sums\.user must be a function, not str"):
        load_environment(file)


def test_a_file_without_its_parts_is_refused_with_what_to_define(write):
    file = write(PARTS.replace("measures =", "checks ="))
    with pytest.raises(InvalidInput, match="define agent, suite and measures in it"):
        load_environment(file)


def test_the_digest_changes_with_the_file(write):
    first = read_task(load_environment(write(PARTS)), None, None).digest
    sys.modules.pop("sums")
    second = read_task(load_environment(write(PARTS + "settings = {}\n")), None, None).digest
    assert first != second


def test_config_is_refused_because_a_file_has_no_fields(write):
    with pytest.raises(InvalidInput, match=r"config\.size"):
        load_environment(write(PARTS), {"size": 3})


def test_python_takes_the_module_of_a_file_for_its_environment(write: Write) -> None:
    load_environment(write(PARTS + "settings = {'max_turns': 2}\n"))
    module = sys.modules["sums"]
    task = read_task(module, None, None)
    assert (task.environment, task.agent.name, list(task.measures.weights)) == (
        "sums", "a", ["length"],
    )  # fmt: skip
    assert default_settings(module) == {"max_turns": 2}
