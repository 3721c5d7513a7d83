from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "examples" / "quickstart.py"


def test_the_readme_shows_the_quickstart_as_it_is():
    assert f"```python\n{QUICKSTART.read_text()}```" in (ROOT / "README.md").read_text()


def test_the_quickstart_has_at_most_forty_lines():
    assert len(QUICKSTART.read_text().splitlines()) <= 40


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_quickstart_learns_when_run_as_written(tmp_path):
    done = subprocess.run(
        [sys.executable, str(QUICKSTART)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    before, after = map(float, re.findall(r"validation reward at step \d+: ([\d.]+)", done.stdout))
    assert after > before, done.stdout
