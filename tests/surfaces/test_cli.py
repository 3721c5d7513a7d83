"""The command line, as a process: what people and programs see."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

AGENT_FILE = Path(__file__).parents[1] / "jobs" / "agent_file.py"


def sparring(*arguments: str, folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", "from sparring.surfaces.cli.main import run; run()", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def evaluated(folder, tiny_folder, *more: str):
    return sparring(
        "eval",
        f"{AGENT_FILE}:Waiting",
        "--model",
        str(tiny_folder),
        "--cases",
        "6",
        "--max-completion-length",
        "16",
        *more,
        folder=folder,
    )


def test_an_evaluation_shows_its_table_and_its_rollouts_can_be_read(tmp_path, tiny_folder):
    done = evaluated(tmp_path, tiny_folder)
    assert done.returncode == 0, done.stderr
    for shown in ("is_long", "95 % interval", "calls parsed", "truncated", "tokens", "time"):
        assert shown in done.stdout
    listed = sparring("rollout", "list", "waiting", "--count", "3", "--json", folder=tmp_path)
    page = json.loads(listed.stdout)
    assert (page["total"], len(page["rollouts"])) == (6, 3)
    rollout = page["rollouts"][0]["id"]
    shown = sparring("rollout", "show", "waiting", rollout, folder=tmp_path)
    assert "question 0" in shown.stdout
    assert "length" in shown.stdout


@pytest.mark.nightly
def test_json_goes_to_standard_output_and_nothing_else_does(tmp_path, tiny_folder):
    done = evaluated(tmp_path, tiny_folder, "--json", "--rollouts", "2")
    summary = json.loads(done.stdout)
    assert summary["rollouts"] == 12
    assert summary["measures"]["is_long"]["pass_rate"]["count"] == 6


@pytest.mark.nightly
def test_a_changed_file_is_refused_on_resuming(tmp_path, tiny_folder):
    own = tmp_path / "mine.py"
    own.write_text(AGENT_FILE.read_text())
    done = sparring(
        "eval",
        "mine.py:waiting",
        "--model",
        str(tiny_folder),
        "--cases",
        "2",
        "--max-completion-length",
        "8",
        "--json",
        folder=tmp_path,
    )
    run = json.loads(done.stdout)["run"]
    again = sparring("run", "resume", run, "--json", folder=tmp_path)  # done: shown at once
    assert json.loads(again.stdout) == json.loads(done.stdout)
    events = tmp_path / "runs" / run / "events.jsonl"
    lines = events.read_text().splitlines(keepends=True)
    cut_off = lines[-1].replace("completed", "failed")
    events.write_text("".join([*lines[:-1], cut_off]))
    own.write_text(own.read_text() + "\n# changed\n")
    refused = sparring("run", "resume", run, folder=tmp_path)
    assert refused.returncode == 2
    assert "--accept-changes" in refused.stderr
    again = sparring("run", "resume", run, "--accept-changes", "--json", folder=tmp_path)
    assert json.loads(again.stdout)["rollouts"] == 2


HEAD = "from agents import Agent\nfrom sparring import Environment, Suite\nclass E(Environment):\n"
BROKEN = {
    "no_agent": HEAD + "    measures = ('length',)\n",
    "no_suite": HEAD
    + "    def agent(self): return Agent(name='a')\n    def suite(self): return None\n",
    "bad_agent": HEAD + "    def agent(self):\n        return Agent(nme='a')\n",
    "plain_tool": HEAD
    + "    measures = ('length',)\n    def agent(self): return Agent(name='a', tools=[print_it])\n"
    + "    def suite(self): return Suite.from_records(\n"
    + "        [{'input': str(n), 'split': 'validation'} for n in range(30)])\n"
    + "def print_it(): pass\n",
    "syntax": "def broken(:\n",
    "raises": "raise RuntimeError('no data here')\n",
    "empty": "x = 1\n",
    "hosted": (
        "from agents import Agent, WebSearchTool\nfrom sparring import Environment, Suite\n"
        "class E(Environment):\n"
        "    measures = ('length',)\n"
        "    def agent(self): return Agent(name='a', tools=[WebSearchTool()])\n"
        "    def suite(self): return Suite.from_records(\n"
        "        [{'input': str(n), 'split': 'validation'} for n in range(30)])\n"
    ),
}


AT_ONCE = [
    (["eval", "nobody.py:X"], 2, "there is no file nobody.py"),
    (["eval"], 2, "Missing argument"),
    (["eval", "syntax.py:E", "--model", "tiny"], 2, "syntax.py:1 cannot be loaded"),
    (["eval", f"{AGENT_FILE}:Waiting", "--temperature", "-1"], 2, "temperature: Input should be"),
    (["eval", f"{AGENT_FILE}:Waiting", "--split", "foo"], 2, "--split"),
    (["eval", f"{AGENT_FILE}:Waiting", "--endpoint", "http://x"], 2, "pass --model NAME"),
    (["run", "resume", "nobody"], 102, "there is no run 'nobody'"),
    (["rollout", "show", "../../etc", "x"], 102, "there is no run"),
    (["models", "fetch", "gpt"], 2, "use one of tiny, smollm2"),
]
IN_THE_RUN = [
    (["eval", "plain_tool.py:E", "--model", "MODEL"], 2, "decorate it with @function_tool"),
    (["eval", "raises.py:E", "--model", "tiny"], 2, "raises.py:1 cannot be loaded: RuntimeError"),
    (["eval", "empty.py:E", "--model", "tiny"], 2, "derive a class from sparring.Environment"),
    (["eval", "hosted.py:E", "--model", "MODEL"], 2, "replace it with your own function tool"),
    (["eval", "no_agent.py:E"], 2, "E must define agent()"),
    (["eval", "no_suite.py:E"], 2, "E.suite() must return a Suite, not a NoneType"),
    (["eval", "bad_agent.py:E"], 2, "failed at bad_agent.py:5: TypeError"),
    (["eval", f"{AGENT_FILE}:Waiting"], 2, "pass --model"),
    (["eval", f"{AGENT_FILE}:Nobody", "--model", "tiny"], 2, "it has Waiting, waiting"),
    (["eval", f"{AGENT_FILE}:Waiting", "--model", "gpt-9"], 2, "Qwen/Qwen3-0.6B"),
    (
        ["eval", f"{AGENT_FILE}:Waiting", "--split", "training", "--model", "tiny"],
        2,
        "training split has 0",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        *AT_ONCE,
        IN_THE_RUN[0],
        *(pytest.param(*each, marks=pytest.mark.nightly) for each in IN_THE_RUN[1:]),
    ],
)
def test_a_wrong_command_is_refused_with_the_remedy(
    tmp_path, tiny_folder, arguments, code, message
):
    for name, source in BROKEN.items():
        (tmp_path / f"{name}.py").write_text(source)
    arguments = [str(tiny_folder) if each == "MODEL" else each for each in arguments]
    done = sparring(*arguments, folder=tmp_path)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["eval", "nobody.py:X"], 2), (["rollout", "list", "x"], 102), (["eval", "--cases", "x"], 2)],
)
def test_an_error_is_json_with_the_option_json(tmp_path, arguments, code):
    done = sparring(*arguments, "--json", folder=tmp_path)
    assert done.returncode == code
    assert json.loads(done.stdout)["error"]["exit_code"] == code


@pytest.mark.nightly
def test_an_unreachable_endpoint_is_shown_as_infrastructure_and_scores_nothing(tmp_path):
    done = sparring(
        "eval",
        f"{AGENT_FILE}:Waiting",
        "--model",
        "x",
        "--endpoint",
        "http://127.0.0.1:9/v1",
        "--cases",
        "2",
        "--json",
        folder=tmp_path,
    )
    assert done.returncode == 100
    error = json.loads(done.stdout)["error"]
    assert error["type"] == "InfrastructureError"
    assert "none of 2 rollouts could be scored" in error["message"]
    assert "Check the address" in error["message"]
