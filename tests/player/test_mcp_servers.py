"""MCP servers are connected while an agent plays, and closed behind it."""

import sys

from agents import Agent
from agents.mcp import MCPServerStdio

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import Ending, RolloutKey
from sparring.player import Play, Player
from sparring.player.mcp_servers import has_servers, tool_names
from sparring.player.trial_round import play_unjudged
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.threads import run_in_own_loop
from tests.rollouts import call, play_script

SERVER = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("shop")

@server.tool()
def stock(item: str) -> str:
    "How many there are."
    if item == "ghost":
        raise ValueError("no ghosts")
    return f"seven {item}s"

server.run()
"""


def test_a_server_is_connected_for_the_rollout_and_closed_again(codecs, tmp_path):
    (tmp_path / "shop.py").write_text(SERVER)
    params = {"command": sys.executable, "args": [str(tmp_path / "shop.py")]}
    server = MCPServerStdio(params, name="shop", client_session_timeout_seconds=60)
    replies = [call("stock", item="lamp"), call("stock", item="ghost"), "Seven."]
    played = play_script(Agent(name="a", mcp_servers=[server]), replies, codecs["qwen3"])
    assert (played.ending, played.answer) == (Ending.ANSWERED, "Seven."), played.detail
    lamp, ghost = played.tool_calls
    assert "seven lamps" in lamp.result
    assert lamp.failure is None
    assert ghost.failure is not None
    assert server.session is None


STATEFUL = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("counter")
count = 0

@server.tool()
def add() -> str:
    "Count one more."
    global count
    count += 1
    return str(count)

server.run()
"""


def test_a_world_has_servers_of_its_own_whose_state_does_not_mix(codecs, tmp_path):
    (tmp_path / "counter.py").write_text(STATEFUL)
    made = []

    class World:
        def mcp_servers(self):
            params = {"command": sys.executable, "args": [str(tmp_path / "counter.py")]}
            made.append(MCPServerStdio(params, name="counter", client_session_timeout_seconds=60))
            return made[-1:]

    replies = [call("add"), call("add"), "Two."]
    policy = ScriptedPolicy(lambda request: replies[request.key.turn], codecs["qwen3"])
    player = Player(Agent(name="a"), policy, context=World)
    plays = [Play(RolloutKey(0, 0, "c", index), Case("c", "Count.")) for index in range(2)]
    rollouts = run_in_own_loop(play_unjudged(player, plays))
    assert [[each.result for each in played.tool_calls] for played in rollouts] == [["1", "2"]] * 2
    assert [server.session for server in made] == [None, None]
    assert has_servers(Agent(name="a"), World())
    assert not has_servers(Agent(name="a"), None)


def test_a_server_of_a_world_that_cannot_start_leaves_the_rollout_unscored(codecs):
    class World:
        async def mcp_servers(self):
            return [MCPServerStdio({"command": "false", "args": []}, name="broken")]

    policy = ScriptedPolicy(lambda request: "hi", codecs["qwen3"])
    player = Player(Agent(name="a"), policy, context=World)
    played = run_in_own_loop(player.play_one(Play(RolloutKey(0, 0, "c", 0), Case("c", "Hi."))))
    assert played.ending is Ending.INFRASTRUCTURE_ERROR
    assert "cannot connect to the MCP server broken" in played.detail


def test_the_tools_of_a_server_are_listed(tmp_path):
    (tmp_path / "shop.py").write_text(SERVER)
    params = {"command": sys.executable, "args": [str(tmp_path / "shop.py")]}
    server = MCPServerStdio(params, name="shop", client_session_timeout_seconds=60)
    assert run_in_own_loop(tool_names([server])) == ["stock"]
