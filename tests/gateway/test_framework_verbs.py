"""Agents of real frameworks through the ordinary verbs: checked, trained and proven on the tiny
model. `make frameworks` installs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparring.sandbox import probe
from tests.gateway.test_frameworks import FOLDER, FRAMEWORKS, INSTALLED, ROOT, Framework

pytestmark = [pytest.mark.nightly, pytest.mark.frameworks, pytest.mark.timeout(900)]
ENVIRONMENT = """
from sparring import Environment, Suite
from tests.training import TALKATIVE, even


class Tested(Environment):
    family = TALKATIVE
    measures = (even,)
    settings = {{
        "num_generations": 4,
        "cases_per_batch": 2,
        "gradient_accumulation_steps": 1,
        "max_steps": 2,
        "max_completion_length": 48,
        "mask_truncated_completions": False,
        "validation_cases": 4,
        "rollout_timeout": 120.0,
    }}
{attributes}
    def suite(self):
        records = [{{"input": f"What is {{n}} + 1?"}} for n in range(60)]
        return Suite.from_records(records)
"""
WORKSPACE = """
    def world(self):
        return self.workspace({"broken.py": "print(1)\\n"})
"""


def project(place: Path, attributes: dict[str, Any], more: str = "") -> Path:
    lines = "".join(f"    {name} = {value!r}\n" for name, value in attributes.items())
    (place / "tested.py").write_text(ENVIRONMENT.format(attributes=lines + more))
    for file in FOLDER.glob("*.py"):
        shutil.copy(file, place)
    return place


def sparring(place: Path, model: Path, *words: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "sparring", *map(str, words), "--model", str(model), "--json"],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip(), done.stderr[-3000:]
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


def check_train_and_prove(place: Path, model: Path) -> dict[str, Any]:
    """Run the three verbs; return the summary of the training."""
    checked = sparring(place, model, "check", "tested.py:Tested", "--cases", 2, "--rollouts", 4)
    assert checked["kind"] == "check"
    assert checked["verdict"]
    trained = sparring(place, model, "train", "tested.py:Tested")
    assert trained["steps"] == 2
    assert trained["last"]["grad_norm"] >= 0
    proof = trained["proof"]
    assert proof["kind"] == "prove"
    assert proof["verdict"]
    return trained


def attributes_of(framework: Framework) -> dict[str, Any]:
    if framework.script.endswith(".mjs"):
        folder = INSTALLED / framework.place
        for file in FOLDER.glob("*.mjs"):  # Node looks for packages beside the script
            shutil.copy(file, folder)
        return {"command": ["node", str(folder / framework.script)], "reuse": True}
    python = str(INSTALLED / framework.place)
    return {"command": ["python", framework.script], "python": python, "reuse": True}


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=str)
def test_a_framework_is_checked_trained_and_proven(framework, tiny_folder, tmp_path):
    if not (INSTALLED / framework.place).exists():
        pytest.skip("make frameworks")
    place = project(tmp_path, attributes_of(framework))
    trained = check_train_and_prove(place, tiny_folder)
    print(framework.title, {name: trained["last"][name] for name in ("reward", "grad_norm")})


@pytest.mark.skipif(not probe().works, reason="needs bubblewrap")
def test_a_coding_agent_is_checked_trained_and_proven_in_the_sandbox(tiny_folder, tmp_path):
    if not (INSTALLED / "mini").exists():
        pytest.skip("make frameworks")
    attributes = {
        "command": ["python", "mini_agent.py"],
        "command_files": ["mini_agent.py"],
        "python": str(INSTALLED / "mini"),
        "needs_sandbox": True,
    }
    place = project(tmp_path, attributes, WORKSPACE)
    trained = check_train_and_prove(place, tiny_folder)
    print({name: trained["last"][name] for name in ("reward", "grad_norm")})
