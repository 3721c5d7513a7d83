"""`sparring init`, `env`, `config`, `chat`, `doctor`, as a person types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparring.sandbox import probe

COMMAND = [sys.executable, "-c", "from sparring.surfaces.cli.main import run; run()"]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def sparring(*arguments: object, folder: Path, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False,
        **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def begun(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("begun")
    done = sparring("init", "my_agent", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_new_environment_passes_its_own_test(begun):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=begun,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


@pytest.mark.nightly
def test_a_new_environment_is_found_and_passes_env_test(begun):
    listed = json.loads(sparring("env", "list", "--json", folder=begun).stdout)
    assert [each["name"] for each in listed["environments"]] == ["my_agent"]
    done = sparring("env", "test", "my_agent", folder=begun)
    assert done.returncode == 0, done.stdout + done.stderr
    for shown in ("✓ loads", "✓ measures", "✓ judging an empty answer", "✓ model tiny"):
        assert shown in done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("start", ["documents", "game"])
def test_every_starting_point_passes_its_own_test_and_calls_its_tools(tmp_path, start):
    assert sparring("init", "my_agent", "--from", start, folder=tmp_path).returncode == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    tried = sparring("env", "test", "my_agent", "--json", folder=tmp_path)
    checks = json.loads(tried.stdout)["checks"]
    called = [each for each in checks if each["what"].startswith("calls ")]
    assert called, checks
    assert all(each["ok"] and not each["is_doubtful"] for each in called), called


def test_a_starting_point_that_is_not_there_is_answered_with_those_that_are(tmp_path):
    done = sparring("init", "my_agent", "--from", "chess", folder=tmp_path)
    assert done.returncode == 2
    assert "documents (questions about a folder of documents)" in done.stderr


TOOLS = """
from agents import Agent, function_tool
from sparring import Environment, Suite
from sparring.measures import exact

@function_tool
def find(word: str) -> str:
    raise RuntimeError("no index")

class Shelf:
    pass

class Broken(Environment):
    measures = (exact(),)
    settings = {"max_completion_length": 24}
    async def world(self, case):
        return Shelf()
    def agent(self):
        return Agent(name="a", tools=[find, *([find] if self.config.twice else [])], model="tiny")
    class Config(Environment.Config):
        twice: bool = False
    def suite(self):
        call = {"type": "function_call", "call_id": "1", "name": "find"}
        call["arguments"] = '{"word": "x"}'
        shown = [call, {"type": "function_call_output", "call_id": "1", "output": "y"}]
        with_examples = lambda row: [*shown, {"role": "user", "content": row["q"]}]
        rows = [{"q": f"question {n}"} for n in range(400)]
        return Suite.from_records(rows, input=with_examples, expected="q")
"""


def test_env_test_calls_each_tool_and_names_one_that_raises(tmp_path):
    (tmp_path / "broken.py").write_text(TOOLS)
    done = sparring("env", "test", "broken", folder=tmp_path)
    assert done.returncode == 100
    assert '✗ calls find({"word": "x"})' in done.stdout
    assert "✓ world" in done.stdout
    done = sparring("env", "test", "broken", "--set", "config.twice=true", folder=tmp_path)
    assert "repeated: find" in done.stdout


def test_init_writes_over_nothing(begun):
    done = sparring("init", "my_agent", folder=begun)
    assert done.returncode == 2
    assert "exists already" in done.stderr
    assert sparring("init", "My-Agent", folder=begun).returncode == 2


@pytest.mark.nightly
def test_env_test_says_what_is_wrong_and_exits_with_100(tmp_path):
    (tmp_path / "wrong.py").write_text(
        "from agents import Agent\n"
        "from sparring import Environment, Suite, measure, passed\n"
        "@measure\n"
        "def always(rollout): return passed('why not')\n"
        "class Wrong(Environment):\n"
        "    measures = (always,)\n"
        "    def agent(self): return Agent(name='a')\n"
        "    def suite(self): return Suite.from_records([{'input': str(n)} for n in range(400)])\n"
    )
    done = sparring("env", "test", "wrong", folder=tmp_path)
    assert done.returncode == 100
    assert "✗ an empty answer fails  it passes every measure" in done.stdout


def test_config_show_tells_sources_and_locks(begun):
    done = sparring("config", "show", "my_agent", "--set", "lora.r=4", "--json", folder=begun)
    shown = {each["name"]: each for each in json.loads(done.stdout)["settings"]}
    assert shown["lora.r"]["source"] == "the command"
    assert shown["learning_rate"]["source"].startswith("sparring.toml:")
    assert shown["max_turns"]["source"] == "MyAgent in my_agent.py"
    assert shown["config.examples"]["source"] == "defaults"
    table = sparring("config", "show", "my_agent", folder=begun).stdout
    assert "sparring.toml:" in table
    assert "more settings have their defaults" in table


def test_a_wrong_assignment_is_refused_with_the_nearest_name(begun):
    done = sparring("train", "my_agent", "--set", "config.exampels=2", folder=begun)
    assert done.returncode == 2
    assert "did you mean config.examples?" in done.stderr
    assert not (begun / "runs").exists()


def test_env_show_describes_fields(begun):
    done = sparring("env", "show", "my_agent", folder=begun)
    assert "examples" in done.stdout
    assert "worked examples" in done.stdout


def test_chat_talks_to_the_agent_and_shows_its_tools(tiny_folder):
    bell = EXAMPLES / "bell" / "bell.py"
    typed = "hello\n/new\nhello again\n/quit\n"
    done = sparring(
        "chat", bell, "--model", tiny_folder, "--set", "max_completion_length=16",
        folder=EXAMPLES, input=typed,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "bell, not trained" in done.stdout
    assert "/help lists the commands" in done.stdout


@pytest.mark.nightly
def test_chat_helps_shows_tools_and_an_example_and_leaves(begun, tiny_folder):
    typed = "/help\n/tools\n/new\nexit\nnever sent\n"
    done = sparring("chat", "my_agent", "--model", tiny_folder, folder=begun, input=typed)
    assert done.returncode == 0, done.stderr
    assert "my_agent, not trained" in done.stdout
    assert "for example: How many " in done.stdout
    assert "/tools  list the agent's tools" in done.stdout
    assert "count  Count the pieces of an item in a place." in done.stdout
    assert "never sent" not in done.stdout


def test_doctor_names_what_is_there_and_never_a_key(tmp_path):
    keys = {**os.environ, "OPENAI_API_KEY": "a-secret-key", "HF_TOKEN_FILE": "/nowhere"}
    done = sparring("doctor", "--json", folder=tmp_path, env=keys)
    findings = {each["what"]: each for each in json.loads(done.stdout)["findings"]}
    assert done.returncode == 0
    assert "a-secret-key" not in done.stdout
    assert findings["OPENAI_API_KEY"]["found"] == "set"
    assert "cannot be read" in findings["HF_TOKEN"]["found"]
    assert findings["torch"]["standing"] == "ok"
    assert "CPU" in findings["devices"]["found"] or "CUDA" in findings["devices"]["found"]
    assert (findings["sandbox"]["standing"] == "ok") == probe().works
    shown = sparring("doctor", folder=tmp_path).stdout
    assert "sandbox" in shown
    assert "GB free" in shown


def test_a_broken_project_file_names_the_line(tmp_path):
    (tmp_path / "sparring.toml").write_text("[settings]\nlearning_rat = 1\n")
    done = sparring("env", "list", folder=tmp_path)
    assert done.returncode == 2
    assert "sparring.toml:2: learning_rat" in done.stderr


def test_a_run_whose_service_never_comes_up_fails_with_its_last_lines(tmp_path, tiny_folder):
    (tmp_path / "waits.py").write_text(
        "import sys\n"
        "from agents import Agent\n"
        "from sparring import Environment, Service, Suite\n"
        "class Waits(Environment):\n"
        "    measures = ('length',)\n"
        "    services = (Service('db', [sys.executable, '-c',\n"
        "        'import time; print(\"no space on the disk\", flush=True); time.sleep(60)'],\n"
        "        seconds=1),)\n"
        "    def agent(self): return Agent(name=self.address('db'))\n"
        "    def suite(self): return Suite.from_records([{'input': str(n)} for n in range(400)])\n"
    )
    done = sparring("eval", "waits", "--model", tiny_folder, folder=tmp_path)
    assert done.returncode == 100
    assert "service db was not ready within 1 s" in done.stderr
    assert "no space on the disk" in done.stderr


@pytest.mark.nightly
@pytest.mark.skipif(not probe().works, reason=probe().why_not)
def test_a_run_without_a_sandbox_says_so_in_its_table(tmp_path, tiny_folder):
    options = ["--model", tiny_folder, "--cases", "1", "--max-completion-length", "16"]
    terminal = EXAMPLES / "terminal" / "terminal.py"
    done = sparring("eval", terminal, *options, "--set", "unsandboxed=true", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "without a sandbox (unsandboxed=true)" in done.stdout


def test_an_environment_whose_file_does_not_parse_is_refused_with_the_line(tmp_path):
    (tmp_path / "mine.py").write_text("from sparring import Environment\nclass Mine(Environment)\n")
    done = sparring("eval", "mine", folder=tmp_path)
    assert done.returncode == 2
    assert "mine.py:2 does not parse" in done.stderr
    listed = sparring("env", "list", folder=tmp_path).stdout
    assert "init" not in listed
    assert "mine.py:2" in listed


@pytest.mark.nightly
def test_a_world_that_breaks_is_a_check_with_its_line(tmp_path):
    (tmp_path / "broken.py").write_text(
        "from agents import Agent\n"
        "from sparring import Environment, Suite\n"
        "class Broken(Environment):\n"
        "    measures = ('length',)\n"
        "    def agent(self): return Agent(name='a')\n"
        "    def suite(self): return Suite.from_records([{'input': str(n)} for n in range(400)])\n"
        "    def world(self, case): return case.fields['nothing']\n"
    )
    done = sparring("env", "test", "broken", folder=tmp_path)
    assert done.returncode == 100
    assert "✗ world  KeyError: 'nothing' (broken.py:7)" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
def test_a_measure_that_returns_no_verdict_is_named_by_an_evaluation(tmp_path, tiny_folder):
    (tmp_path / "plain.py").write_text(
        "from agents import Agent\n"
        "from sparring import Environment, Suite, measure\n"
        "@measure\n"
        "def says_yes(rollout): return 'yes'\n"
        "class Plain(Environment):\n"
        "    measures = (says_yes,)\n"
        "    def agent(self): return Agent(name='a')\n"
        "    def suite(self): return Suite.from_records([{'input': str(n)} for n in range(400)])\n"
    )
    options = ["--model", tiny_folder, "--cases", "2", "--max-completion-length", "8"]
    done = sparring("eval", "plain", *options, folder=tmp_path)
    assert done.returncode == 100
    assert "says_yes returned 'yes'; return passed(reason)" in done.stderr
    assert "--resume" not in done.stderr
    assert sparring("rollout", "list", "plain", folder=tmp_path).returncode == 0
