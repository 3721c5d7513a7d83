"""Agents that are processes: one a rollout, or one for many; nothing of them outlives a rollout."""

import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from sparring.contracts.errors import InvalidInput
from sparring.contracts.rollouts import Ending
from sparring.gateway.agents import GatewayAgent
from sparring.gateway.processes import CommandProgram, ReusedProgram, command_line
from sparring.policies.scripted_policy import ScriptedPolicy
from tests.gateway.playing import ADD, SDK_AGENT, TOOLS, calls_tool, play_all, plays

AGENT = """
import asyncio, json, os, sys
sys.path.insert(0, {root!r})
from openai import AsyncOpenAI
from tests.gateway.plain_loop import loop

TOOLS = {tools!r}

async def main():
    case = json.load(open(os.environ["SPARRING_CASE_FILE"]))
    assert set(case) == {{"id", "input", "messages"}}
    answer = await loop(AsyncOpenAI(), os.environ["SPARRING_MODEL"], case["messages"], TOOLS)
    open(os.environ["SPARRING_ANSWER_FILE"], "w").write(answer)

asyncio.run(main())
"""
REUSED = """
import json, os, sys, urllib.request

print("warming up")
for line in sys.stdin:
    given = json.loads(line)
    if given["case"]["id"] == "c3":
        sys.exit(3)
    body = {"model": "m", "messages": given["case"]["messages"]}
    request = urllib.request.Request(
        given["session"]["base_url"] + "/chat/completions", json.dumps(body).encode()
    )
    reply = json.load(urllib.request.urlopen(request))
    answer = reply["choices"][0]["message"]["content"]
    print(json.dumps({"answer": f"{answer} from {os.getpid()}"}), flush=True)
"""
ROOT = str(Path(__file__).resolve().parents[2])


def agent_of(program, **options):
    return GatewayAgent("tested", program, **options)


def script(tmp_path, text):
    file = tmp_path / "agent.py"
    file.write_text(text)
    return [sys.executable, str(file)]


def test_a_command_plays_as_the_sdk_does(codecs, tmp_path):
    policy = ScriptedPolicy(calls_tool(ADD), codecs["qwen3"])
    (own,) = play_all(SDK_AGENT, policy)
    program = CommandProgram(script(tmp_path, AGENT.format(root=ROOT, tools=TOOLS)), tmp_path)
    (rollout,) = play_all(agent_of(program), policy)
    assert rollout.ending is Ending.ANSWERED, rollout.detail
    assert (rollout.answer, rollout.rows) == (own.answer, own.rows)


def test_a_command_that_fails_shows_the_end_of_its_output(codecs, tmp_path):
    text = "import sys; print('all is lost'); sys.exit(7)"
    program = CommandProgram(script(tmp_path, text), tmp_path)
    policy = ScriptedPolicy(lambda _: "five", codecs["qwen3"])
    (rollout,) = play_all(agent_of(program), policy)
    assert rollout.ending is Ending.NO_MODEL_CALL
    assert "exit code 7: all is lost" in rollout.detail


def test_a_command_that_does_not_exist_is_named(codecs, tmp_path):
    program = CommandProgram(["/nowhere/agent"], tmp_path)
    (rollout,) = play_all(agent_of(program), ScriptedPolicy(lambda _: "5", codecs["qwen3"]))
    assert "cannot start '/nowhere/agent'" in rollout.detail


def test_the_process_group_ends_with_the_rollout(codecs, tmp_path):
    text = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(600)\n"
    )
    program = CommandProgram(script(tmp_path, text), tmp_path)
    policy = ScriptedPolicy(lambda _: "five", codecs["qwen3"])
    (rollout,) = play_all(agent_of(program), policy, rollout_timeout=2.0)
    assert rollout.ending is Ending.ROLLOUT_DEADLINE
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 5
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_reused_process_takes_case_after_case(codecs, tmp_path):
    program = ReusedProgram(script(tmp_path, REUSED), tmp_path)
    policy = ScriptedPolicy(lambda _: "five", codecs["qwen3"])
    rollouts = play_all(agent_of(program), policy, plays(3), max_concurrency=1)
    pids = {rollout.answer.removeprefix("five from ") for rollout in rollouts}
    assert len(pids) == 1
    assert int(pids.pop()) != os.getpid()


def test_a_reused_process_that_ends_is_replaced(codecs, tmp_path):
    program = ReusedProgram(script(tmp_path, REUSED), tmp_path)
    policy = ScriptedPolicy(lambda _: "five", codecs["qwen3"])
    rollouts = play_all(agent_of(program), policy, plays(5), max_concurrency=1)
    assert [rollout.ending for rollout in rollouts] == [
        *[Ending.ANSWERED] * 3,
        Ending.NO_MODEL_CALL,
        Ending.ANSWERED,
    ]
    assert "exit code 3" in rollouts[3].detail


def test_a_process_that_leaves_its_group_and_keeps_the_output_does_not_hold_up_the_others(
    codecs, tmp_path
):
    child = "import time; time.sleep(600)"
    text = (
        "import subprocess, sys, time\n"
        "sys.stdin.readline()\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    program = ReusedProgram(script(tmp_path, text), tmp_path)
    policy = ScriptedPolicy(lambda _: "five", codecs["qwen3"])
    began = time.monotonic()
    try:
        (rollout,) = play_all(agent_of(program), policy, plays(1), rollout_timeout=8.0)
    finally:
        if (tmp_path / "pid").exists():
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert rollout.ending is Ending.ROLLOUT_DEADLINE
    assert time.monotonic() - began < 60


def test_a_reused_process_that_prints_a_line_without_end_fails_its_rollout(codecs, tmp_path):
    endless = "import sys\nsys.stdin.readline()\nprint('x' * 4_000_001, flush=True)\ninput()\n"
    program = ReusedProgram(script(tmp_path, endless), tmp_path)
    policy = ScriptedPolicy(lambda _: "five", codecs["qwen3"])
    (rollout,) = play_all(agent_of(program), policy, plays(1), max_concurrency=1)
    assert rollout.ending is Ending.NO_MODEL_CALL
    assert "a line of more than 4,000,000 bytes" in rollout.detail


def test_python_names_a_virtual_environment(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    assert command_line(["python", "a.py"], tmp_path) == [f"{tmp_path}/bin/python", "a.py"]
    assert command_line(["node", "a.mjs"], tmp_path) == ["node", "a.mjs"]


def test_a_virtual_environment_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="has no bin/python"):
        command_line(["python", "a.py"], tmp_path / "none")


def test_a_command_must_be_a_list(tmp_path):
    with pytest.raises(InvalidInput, match="must be a list"):
        command_line("python a.py", None)
