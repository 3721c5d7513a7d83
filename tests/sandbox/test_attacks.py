"""Every attempt to get out is contained, whoever runs Sparring."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from sparring.sandbox import probe
from tests.sandbox.attacks import ATTACKS, run_all

pytestmark = [
    pytest.mark.skipif(not probe().works, reason=probe().why_not),
]
ROOT = Path(__file__).resolve().parents[2]
NOBODY = "12345"


def refuse_escapes(result: dict) -> None:
    escaped = [each for each in result["outcomes"] if not each["contained"]]
    assert not escaped
    assert result["contained"] == result["attempts"] == len(ATTACKS) >= 40
    assert not result["connections"]
    # Beside a harmless program before it; the machine is shared, so with room.
    assert result["call_ms_after"] < 3 * result["call_ms_before"] + 20


def test_all_attempts_are_contained_as_whoever_runs_this():
    refuse_escapes(run_all())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.nightly
def test_all_attempts_are_contained_as_an_ordinary_user():
    result = as_an_ordinary_user()
    assert result["as"] == "an ordinary user"
    refuse_escapes(result)


def as_an_ordinary_user() -> dict:
    """With the system's Python: that of this environment may lie where others cannot go."""
    place = Path(tempfile.mkdtemp(prefix="sparring-attacks-"))
    package = place / "sparring"
    (package / "contracts").mkdir(parents=True)
    source = ROOT / "src" / "sparring"
    shutil.copytree(source / "sandbox", package / "sandbox")
    for name in ("__init__.py", "contracts/__init__.py", "contracts/errors.py"):
        shutil.copy(source / name, package / name)
    shutil.copy(ROOT / "tests" / "sandbox" / "attacks.py", place)
    subprocess.run(["chmod", "-R", "a+rX", str(place)], check=True)
    become = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
    done = subprocess.run(
        [*become, "/usr/bin/python3", str(place / "attacks.py")],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=place, capture_output=True, text=True, check=False,
    )  # fmt: skip
    shutil.rmtree(place)
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
