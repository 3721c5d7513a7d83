"""examples/calculator on a real model, as the docs show it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "calculator" / "calculator.py"


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_smollm2_plays_64_sums_and_uses_its_tool(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from sparring.surfaces.cli.main import run; run()",
            "eval",
            f"{EXAMPLE}:Calculator",
            "--cases",
            "64",
            "--max-completion-length",
            "96",
            "--json",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    print(json.dumps(summary["measures"], indent=1))
    assert summary["rollouts"] == 64
    assert summary["tool_calls"]["add"] >= 5
    assert 0.02 < summary["measures"]["numeric"]["pass_rate"]["value"] < 0.9
