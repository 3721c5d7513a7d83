"""Mistakes that people make: the first line of the message, the exit code, and that nothing runs.

Each command is a process in a new project, as a person types it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

# Hides the packages of all extras, as in an installation without extras.
HIDDEN = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sparring_hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sparring_hidden = {"torch", "transformers", "accelerate", "trl", "peft", "datasets", "numpy"}
sys.meta_path.insert(0, Hidden())
"""
RUN = "from sparring.surfaces.cli.main import run; run()"
OPENAI = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Mistake:
    """A command, the beginning of its message, and the packages that it lacks."""

    command: str
    message: str
    lacks_packages: bool = False
    code: int = 2


MISTAKES = {
    "an unknown setting": Mistake(
        "train my_agent --set learning_rat=1",
        "the command: learning_rat: there is no such setting; did you mean learning_rate?",
    ),
    "an unknown field of lora": Mistake(
        "train my_agent --set lora.rr=4",
        "the command: lora.rr: there is no such setting; did you mean lora.r?",
    ),
    "an unknown field of the engine": Mistake(
        "check my_agent --set engine.bta=4",
        "the command: engine.bta: there is no such setting; did you mean beta, without `engine`?",
    ),
    "a wrong type": Mistake(
        "train my_agent --set lora.r=many",
        "the command: lora.r: Input should be a valid integer",
    ),
    "an address without http": Mistake(
        "eval my_agent --model m --endpoint localhost:9701",
        "'localhost:9701' is not an HTTP address; write http://localhost:9701/v1",
    ),
    "no key": Mistake(
        f"eval my_agent --model gpt-9 --endpoint {OPENAI}",
        f"{OPENAI} requires a key: set OPENAI_API_KEY, or set OPENAI_API_KEY_FILE to the path",
    ),
    "no key of another model": Mistake(
        f"check my_agent --compare gpt-9@{OPENAI}",
        f"{OPENAI} requires a key: set OPENAI_API_KEY, or set OPENAI_API_KEY_FILE to the path",
    ),
    "env test without packages": Mistake(
        "env test my_agent", "`env test` needs the extra local (torch", lacks_packages=True
    ),
    "check without packages": Mistake(
        "check my_agent", "`check` needs the extra train (torch", lacks_packages=True
    ),
    "train without packages": Mistake(
        "train my_agent", "`train` needs the extra train (torch", lacks_packages=True
    ),
    "eval without packages": Mistake(
        "eval my_agent", "`eval` needs the extra local (torch", lacks_packages=True
    ),
    "ship without a run": Mistake("ship my_agent", "there is no run", code=102),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    made = sparring("init my_agent", folder)
    assert made.returncode == 0, made.stderr
    return folder


def sparring(command: str, folder: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    keys = ("OPENAI_API_KEY", "OPENAI_API_KEY_FILE", "OPENROUTER_API_KEY")
    return subprocess.run(
        [sys.executable, "-c", f"{before}\n{RUN}", *command.split()],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in keys},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_the_next_step_and_nothing_is_started(
    project: Path, name: str
) -> None:
    mistake = MISTAKES[name]
    done = sparring(mistake.command, project, HIDDEN if mistake.lacks_packages else "")
    assert done.stderr.splitlines()[0].startswith(f"sparring: {mistake.message}"), done.stderr
    assert done.returncode == mistake.code
    assert "Traceback" not in done.stderr
    if mistake.lacks_packages:
        assert "pip install " in done.stderr
    assert not list(project.glob("runs/*my-agent*"))
