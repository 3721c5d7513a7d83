"""Agents in the sandbox: they reach the gateway and nothing else."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.contracts.rollouts import Ending
from sparring.environments.workspace import Workspace
from sparring.gateway.agents import GatewayAgent
from sparring.gateway.sandboxed import SandboxedCommand, SandboxedProgram
from sparring.player import Player
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.sandbox import SandboxLimits, probe
from tests.gateway.playing import play_all, plays

sandboxed = pytest.mark.skipif(not probe().works, reason="needs bubblewrap")

AGENT = """
import json, os, pathlib, socket, sys, urllib.request

case = json.load(open(os.environ["SPARRING_CASE_FILE"]))
body = {"model": "m", "messages": case["messages"]}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps(body).encode(),
    {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
)
reply = json.load(urllib.request.urlopen(request))
found = {
    "answer": reply["choices"][0]["message"]["content"],
    "sees": sorted(os.listdir(os.path.dirname(os.path.abspath(sys.argv[0])))),
    "host": os.path.exists(sys.argv[1]),
}
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[2])), timeout=2)
    found["port"] = True
except OSError:
    found["port"] = False
pathlib.Path("note.txt").write_text("left behind")
pathlib.Path(os.environ["SPARRING_ANSWER_FILE"]).write_text(json.dumps(found))
"""


def program_of(folder, *arguments, is_unsandboxed=False):
    (folder / "agent.py").write_text(AGENT)
    (folder / "secret.py").write_text("the answers")
    command = ["python3", "agent.py", *arguments]
    described = SandboxedCommand(command, folder, ["agent.py"])
    return SandboxedProgram(described, is_unsandboxed=is_unsandboxed)


@sandboxed
def test_a_sandboxed_agent_reaches_the_model_and_nothing_else(codecs, tmp_path):
    policy = ScriptedPolicy(lambda _: "five", codecs["qwen3"])
    program = program_of(tmp_path, str(tmp_path / "secret.py"), "1")
    agent = GatewayAgent("tested", program, make_server=program.make_server)
    port = agent.server.port
    program._command = SandboxedCommand(
        ["python3", "agent.py", str(tmp_path / "secret.py"), str(port)], tmp_path, ["agent.py"]
    )
    (rollout,) = play_all(agent, policy)
    assert rollout.ending is Ending.ANSWERED, rollout.detail
    assert json.loads(rollout.answer) == {
        "answer": "five",
        "sees": ["agent.py"],
        "host": False,
        "port": False,
    }
    assert len(rollout.rows) == 1


@pytest.mark.parametrize("is_unsandboxed", [pytest.param(False, marks=sandboxed), True])
def test_the_command_runs_in_the_workspace_of_the_world(codecs, tmp_path, is_unsandboxed):
    policy = ScriptedPolicy(lambda _: "five", codecs["qwen3"])
    program = program_of(tmp_path, "/nowhere", "1", is_unsandboxed=is_unsandboxed)
    agent = GatewayAgent("tested", program, make_server=program.make_server)
    player = Player(
        agent,
        policy,
        context=lambda: Workspace(
            {"a.txt": "b"}, limits=SandboxLimits(), is_unsandboxed=is_unsandboxed
        ),
    )
    rollout = asyncio.run(player.play_one(plays()[0]))
    try:
        assert rollout.ending is Ending.ANSWERED, rollout.detail
        assert rollout.world.read("note.txt") == "left behind"
        assert rollout.world.has("a.txt")
    finally:
        rollout.world.after_rollout()


def test_a_file_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"there is no .*gone.py"):
        SandboxedCommand([sys.executable, "gone.py"], Path(tmp_path), ["gone.py"])
