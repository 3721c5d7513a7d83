"""A coding agent from the registry, unmodified, in the sandbox: it works on the files of a
rollout's workspace, and every token that it sampled is in its rows."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import Ending, Message, RequestedCall, RolloutKey
from sparring.contracts.specs import Limits
from sparring.environments.workspace import Workspace
from sparring.gateway.agents import GatewayAgent
from sparring.gateway.sandboxed import SandboxedCommand, SandboxedProgram
from sparring.player import Play, Player
from sparring.sandbox import probe
from tests.gateway.test_frameworks import FOLDER, ROOT, Recording, check_rows

INSTALLED = Path(os.environ.get("SPARRING_FRAMEWORKS", ROOT / ".venv-frameworks")) / "mini"
COMMANDS = [
    "ls",
    "cat broken.py",
    "python3 broken.py",
    "sed -i 's/a - b/a + b/' broken.py",
    "python3 broken.py",
    "grep -n return broken.py",
    "echo 'from broken import add; assert add(2, 2) == 4' > check.py",
    "python3 check.py",
    "rm check.py",
    "ls -a",
    "wc -l broken.py",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
]
BROKEN = "def add(a, b):\n    return a - b\n\n\nprint(add(2, 3))\n"

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not INSTALLED.exists(), reason="make frameworks"),
    pytest.mark.skipif(not probe().works, reason="needs bubblewrap"),
]


def script(request):
    command = COMMANDS[min(request.key.turn, len(COMMANDS) - 1)]
    call = RequestedCall("c", "bash", json.dumps({"command": command}))
    return Message("assistant", f"Step {request.key.turn}.", calls=(call,))


def test_mini_swe_agent_repairs_a_file_in_the_sandbox(codecs):
    command = SandboxedCommand(["python", "mini_agent.py"], FOLDER, ["mini_agent.py"], INSTALLED)
    program = SandboxedProgram(command)
    agent = GatewayAgent("mini", program, make_server=program.make_server)
    policy = Recording(script, codecs["qwen3"])
    player = Player(
        agent,
        policy,
        limits=Limits(max_turns=21, completion_tokens=1 << 20, rollout_timeout=240.0),
        context=lambda: Workspace({"broken.py": BROKEN}),
    )
    case = Case("repair", "add() in broken.py subtracts; repair it.")
    rollout = asyncio.run(player.play_one(Play(RolloutKey(0, 0, "repair", 0), case)))
    try:
        assert rollout.ending is Ending.ANSWERED, rollout.detail
        assert rollout.turns == len(COMMANDS)
        assert rollout.world.read("broken.py") == BROKEN.replace("a - b", "a + b")
        assert "5" in rollout.tool_calls[4].result
        assert len(rollout.rows) == 1
        check_rows(rollout.rows, policy.calls)
    finally:
        rollout.world.after_rollout()
