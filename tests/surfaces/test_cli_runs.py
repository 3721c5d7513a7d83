"""`sparring run …`, as a process: what people and programs see, and what nobody sees."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparring.run_folder import RunFolder
from tests.supervised import history, wait_for

ROOT = Path(__file__).resolve().parents[2]
TALK = f"{ROOT}/tests/jobs/train_file.py:Talk"
AGENT_FILE = ROOT / "tests" / "jobs" / "agent_file.py"
COMMAND = [sys.executable, "-c", "from sparring.surfaces.cli.main import run; run()"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160"}
SECRET = "sk-planted-5f1d3c"


def sparring(*words: Any, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**ENVIRONMENT, **environment},
    )


def answer(*words: Any, folder: Path) -> Any:
    done = sparring(*words, "--json", folder=folder)
    return json.loads(done.stdout)


def options(tiny: Path, steps: int) -> list[Any]:
    given = {"model": tiny, "max-steps": steps, "max-completion-length": 24}
    given |= {"learning-rate": 1e-3, "save-steps": 2, "validation-cases": 4}
    return [part for name, value in given.items() for part in (f"--{name}", value)] + ["--no-prove"]


def test_a_detached_run_is_watched_stopped_and_resumed(tmp_path, tiny_folder):
    started = sparring("train", TALK, *options(tiny_folder, 40), "--detach", folder=tmp_path)
    run = started.stdout.strip()
    assert started.returncode == 0, started.stderr
    folder = RunFolder(tmp_path / "runs" / run)

    waited = sparring("run", "wait", run, "--news", "--timeout", "60", folder=tmp_path)
    assert waited.returncode == 101
    assert waited.stdout.strip()
    refused = sparring("run", "results", run, "--json", folder=tmp_path)
    assert refused.returncode == 101
    assert json.loads(refused.stdout)["error"]["type"] == "NotFinished"

    wait_for(lambda: (folder.checkpoints / "step-2").exists())
    shown = answer("run", "show", "train-file", folder=tmp_path)
    assert shown["state"] == "running"
    assert [each["name"] for each in shown["processes"]] == ["supervisor", "worker"]
    assert shown["steps"] == 40
    assert "steps left, at the pace so far" in shown["estimate_basis"]
    (line,) = answer("run", "list", "--state", "running", folder=tmp_path)["runs"]
    assert line["run"] == run
    assert "logs/attempt-1/worker.log" in sparring("run", "logs", run, folder=tmp_path).stderr

    second = sparring("eval", TALK, "--model", tiny_folder, "--detach", folder=tmp_path)
    assert f"other runs are active: {run}" in second.stderr
    sparring("run", "stop", second.stdout.strip(), "--wait", folder=tmp_path)

    stopped = sparring("run", "stop", run, "--wait", folder=tmp_path)
    assert stopped.stdout.strip() == f"{run} is stopped"
    assert sparring("run", "wait", run, folder=tmp_path).returncode == 103
    watched = sparring("run", "watch", run, folder=tmp_path)
    assert watched.returncode == 103
    assert f"sparring run resume {run}" in watched.stderr

    assert answer("run", "resume", run, "--detach", folder=tmp_path)["run"] == run
    assert sparring("run", "wait", run, folder=tmp_path).returncode == 0
    results = answer("run", "results", run, "--rows", "5", folder=tmp_path)
    assert [row["step"] for row in results["history"]][-1] == 40
    assert Path(results["best_checkpoint"]).is_dir()
    table = sparring("run", "results", run, folder=tmp_path).stdout
    assert "validation at step 40" in table
    assert "completed" in sparring("run", "list", folder=tmp_path).stdout

    gone = sparring("run", "delete", run, folder=tmp_path)
    assert gone.returncode == 2
    assert "--yes" in gone.stderr
    assert sparring("run", "delete", run, "--yes", folder=tmp_path).returncode == 0
    assert sparring("run", "show", run, folder=tmp_path).returncode == 102


@pytest.mark.nightly
def test_ctrl_c_asks_and_a_run_can_be_left_running(tmp_path, tiny_folder):
    """On a terminal of its own."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [*COMMAND, "train", TALK, *map(str, options(tiny_folder, 400))],
        cwd=tmp_path, env=ENVIRONMENT, stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    output = b""
    os.set_blocking(ours, False)

    def hears(words: bytes) -> bool:
        nonlocal output
        try:
            output += os.read(ours, 1 << 16)
        except (BlockingIOError, OSError):
            time.sleep(0.05)
        return re.search(words, output) is not None

    wait_for(lambda: hears(rb"step [1-9]\d*/400"))  # not every step is shown
    child.send_signal(signal.SIGINT)
    wait_for(lambda: hears(b"leave it running"))
    os.write(ours, b"l\n")
    assert child.wait(30) == 101
    (folder,) = (RunFolder(path) for path in (tmp_path / "runs").glob("[!.]*"))
    assert not history(folder).state.has_ended
    assert not history(folder).is_stop_requested
    assert sparring("run", "stop", folder.id, "--wait", folder=tmp_path).returncode == 0


def found_in(folder: Path, word: str) -> list[Path]:
    return [
        path for path in folder.rglob("*") if path.is_file() and word.encode() in path.read_bytes()
    ]


def test_no_key_gets_into_a_file_or_onto_a_command_line(tmp_path, chat_server):
    """A run that really uses the key, looked at while it runs and afterwards."""
    commands: set[str] = set()
    answered = chat_server.answer

    def looking(request: dict[str, Any]) -> Any:
        for process in psutil.process_iter():
            try:
                commands.add(" ".join(process.cmdline()))
            except psutil.Error:
                continue
        return answered(request)

    chat_server.answer = looking
    done = sparring(
        *("eval", f"{AGENT_FILE}:Waiting", "--endpoint", chat_server.url, "--model", "fake"),
        *("--cases", "4", "--key-variable", "PLANTED", "--json"),
        folder=tmp_path,
        PLANTED=SECRET,
        ANOTHER_API_KEY=SECRET + "-other",
    )
    assert done.returncode == 0, done.stderr
    assert any(SECRET in key for key in chat_server.keys)  # it was used
    sparring("run", "list", folder=tmp_path)
    assert (tmp_path / "runs" / ".sparring" / "index.sqlite").is_file()
    assert not found_in(tmp_path, SECRET)
    assert any("sparring.jobs" in command for command in commands)
    assert not [command for command in commands if SECRET in command]
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["show", "nobody"], 102, "there is no run 'nobody'"),
        (["stop", "nobody"], 102, "there is no run"),
        (["wait", "nobody"], 102, "there is no run"),
        (["list", "--state", "sleeping"], 2, "--state: "),
        (["list", "--count", "0"], 2, "count"),
        (["delete", "nobody", "--yes"], 102, "there is no run"),
        (["nonsense"], 2, "No such command"),
    ],
)
def test_errors_have_one_shape_and_a_code(tmp_path, words, code, message):
    done = sparring("run", *words, "--json", folder=tmp_path)
    assert done.returncode == code
    error = json.loads(done.stdout)["error"]
    assert error["exit_code"] == code
    assert message in error["message"]


def test_a_shell_can_complete_names_of_environments_and_runs(tmp_path):
    (tmp_path / "shop.py").write_text(
        'from sparring import Environment\nclass Shop(Environment):\n    """Sells."""\n'
    )
    RunFolder(tmp_path / "runs" / "shop-20260101-000000-aa").create({"format": 1, "kind": "eval"})

    def offered(*words: str) -> str:
        typed = " ".join(["sparring", *words])
        completion = {"_SPARRING_COMPLETE": "complete_bash", "COMP_WORDS": typed}
        script = str(Path(sys.executable).with_name("sparring"))
        done = subprocess.run(
            [script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**ENVIRONMENT, **completion, "COMP_CWORD": str(len(words))},
        )
        return done.stdout

    assert "shop" in offered("train", "sh").split()
    assert "shop-20260101-000000-aa" in offered("run", "show", "sh").split()
    assert "results" in offered("run", "re").split()


def test_an_empty_project_has_no_runs(tmp_path):
    assert "no runs" in sparring("run", "list", folder=tmp_path).stdout
    assert answer("run", "list", folder=tmp_path) == {"runs": [], "next": ""}
    assert not (tmp_path / "runs").exists()  # looking leaves nothing behind
