"""The whole story over MCP, on a real tiny model; and a server that is killed in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from sparring.operations.activity import VerifyActivity, verify_activity
from sparring.operations.operation import Caller, Role
from sparring.run_folder import RunFolder
from sparring.runs.lifecycle import RunState
from sparring.surfaces.mcp import _in_pool
from sparring.surfaces.tools.catalogue import ToolAnswer
from tests.supervised import ended, history, wait_for
from tests.surfaces.operators import ROOT, operator

PROJECT = """
[settings]
model = "{model}"
max_steps = 3
max_completion_length = 48
validation_cases = 4
save_steps = 1

[budget]
steps = 400
starts_per_day = 12

[operators]
may_set = ["max_steps"]
"""


@pytest.fixture
def project(tmp_path: Path, tiny_folder: Path) -> Path:
    shutil.copy(ROOT / "examples" / "bell" / "bell.py", tmp_path)
    (tmp_path / "sparring.toml").write_text(PROJECT.format(model=tiny_folder))
    return tmp_path


def verified(project: Path) -> Any:
    return verify_activity(VerifyActivity(), Caller(Role.OWNER, project / "runs", folder=project))


@pytest.mark.timeout(600)
@pytest.mark.nightly
def test_an_operator_drives_the_whole_story(project):
    asyncio.run(_the_story(project))
    assert verified(project).ok


async def _the_story(project: Path) -> None:
    async with operator(project) as coach:
        listed = await coach.call("list_environments")
        assert [each["name"] for each in listed["environments"]] == ["bell"]
        described = await coach.call("describe_environment", environment="bell")
        assert described["description"]["measures"] == ["got_in"]
        limits = await coach.call("show_limits")
        assert limits["starts_left"] == 12

        check = await coach.call("check_environment", environment="bell", cases=2, rollouts=4)
        await coach.end_of(check["run"])
        found = (await coach.call("get_results", run=check["run"]))["summary"]
        assert found["verdict"] in ("broken", "too hard", "learnable")

        plan = await coach.call("plan_run", environment="bell", settings={"temperature": 0.9})
        assert plan["cost"]["steps"] == 3
        locked = await coach.refused("revise_plan", plan=plan["plan"], field="lora.r", value=4)
        assert locked["type"] == "LockedField"
        plan = await coach.call("revise_plan", plan=plan["plan"], field="max_steps", value=300)
        started = await coach.call("start_run", plan=plan["plan"])
        run, proof = started["run"], started["proof"]
        assert (await coach.refused("start_run", plan=plan["plan"]))["type"] == "PlanRefused"

        since, steps = 0, []
        while len(steps) < 3:
            news = await coach.call("wait_for_run", run=run, since=since)
            steps += [each["step"] for each in news["news"] if each["event"] == "checkpoint"]
            assert not news["has_ended"], news
            since = news["cursor"]
        page = await coach.call("list_rollouts", run=run, count=4)
        assert "untrusted" in page["rollouts"][0]["answer"]
        shown = await coach.call("show_rollout", run=run, rollout=page["rollouts"][0]["id"])
        assert set(shown["record"]) == {"untrusted"}

        await coach.call("stop_run", run=run)
        assert (await coach.end_of(run))["state"] == "stopped"
        before = (await coach.call("show_run", run=run))["step"]
        await coach.call("resume_run", run=run)
        wait_for(lambda: history(RunFolder(project / "runs" / run)).state is RunState.RUNNING)
        await coach.call("stop_run", run=run)
        await coach.end_of(run)
        assert (await coach.call("show_run", run=run, detail="full"))["step"] >= before

        short = await coach.call("plan_run", like=run, settings={"max_steps": 2})
        again = await coach.call("start_run", plan=short["plan"])
        assert (await coach.end_of(again["run"]))["state"] == "completed"
        assert (await coach.end_of(again["proof"]))["state"] == "completed"
        summary = (await coach.call("get_results", run=again["proof"]))["summary"]
        assert summary["verdict"] in ("better", "worse", "not shown")
        second = await coach.call("prove_run", run=again["run"], rollouts=1)
        await coach.end_of(second["run"])
        assert (await coach.call("get_results", run=second["run"]))["summary"]["cases"] > 20
        compared = await coach.call("compare_runs", runs=[again["run"], second["run"]])
        assert compared["differences"]
        assert history(RunFolder(project / "runs" / proof)).state is RunState.STOPPED

        refused = await coach.refused("list_rollouts", run=again["proof"])
        assert "held-out" in refused["message"]
        listed = await coach.call("list_runs")
        assert len(listed["runs"]) == 6
        assert (await coach.call("show_limits"))["starts_left"] == 12 - 5


@pytest.mark.timeout(300)
@pytest.mark.nightly
def test_a_killed_server_loses_nothing(project):
    plan, run, proof = asyncio.run(_until_killed(project))
    folder = RunFolder(project / "runs" / run)
    assert ended(folder).state is RunState.COMPLETED
    asyncio.run(_after_the_kill(project, plan, run, proof))
    checked = verified(project)
    assert checked.ok
    assert checked.unanswered == ()


async def _until_killed(project: Path) -> tuple[str, str, str]:
    """A run that is on, a plan that is not started, and then nobody to talk to."""
    server: psutil.Process | None = None
    try:
        async with operator(project) as coach:
            first = await coach.call("plan_run", environment="bell")
            kept = await coach.call("plan_run", environment="bell", settings={"seed": 5})
            started = await coach.call("start_run", plan=first["plan"])
            (server,) = [
                each
                for each in psutil.Process().children(recursive=True)
                if each.cmdline()[1:4] == ["-m", "sparring", "mcp"]
            ]
            waiting = asyncio.create_task(coach.ask("wait_for_run", {"run": started["run"]}))
            await asyncio.sleep(0.3)
            os.kill(server.pid, signal.SIGKILL)
            with contextlib.suppress(Exception):  # whatever a client makes of a dead server
                await asyncio.wait_for(waiting, 20)
    except BaseExceptionGroup:
        pass  # the client's own grief over its server
    return kept["plan"], started["run"], started["proof"]


async def _after_the_kill(project: Path, plan: str, run: str, proof: str) -> None:
    async with operator(project) as coach:
        assert (await coach.call("show_run", run=run))["state"] == "completed"
        assert (await coach.call("start_run", plan=plan))["run"] != run
        await coach.end_of(proof)
        error = await coach.refused("start_run", plan=plan)
        assert "was started already" in error["message"]


def test_the_server_says_who_it_is_and_lists_tools_by_role(project):
    async def look() -> None:
        async with operator(project) as coach:
            assert "untrusted" in (coach.client.instructions or "")
            tools = {each.name: each for each in (await coach.client.list_tools()).tools}
            assert 15 <= len(tools) <= 20
            assert tools["stop_run"].annotations.destructive_hint
            assert tools["list_runs"].annotations.read_only_hint
            assert not tools["start_run"].annotations.idempotent_hint
        async with operator(project, "guest", "viewer") as guest:
            names = {each.name for each in (await guest.client.list_tools()).tools}
            assert "start_run" not in names
            error = await guest.refused("start_run", plan="plan-1")
            assert "there is no tool" in error["message"]

    asyncio.run(look())


@pytest.mark.parametrize("name", ["owner", "sparring", "a b", "../x", ""])
def test_a_server_for_a_name_like_the_owners_is_refused(project, name):
    command = [sys.executable, "-m", "sparring", "mcp", "--as", name]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "cannot be the name of an operator" in done.stderr


def test_the_printed_config_starts_the_server(project):
    command = [sys.executable, "-m", "sparring", "mcp", "--print-config", "--as", "coach"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True)
    server = json.loads(done.stdout)["mcpServers"]["sparring"]
    assert server["args"][-3:] == [str(project), "--as", "coach"]


def test_calls_that_are_cancelled_keep_their_places_until_their_threads_end():
    begun, ended, go_on = [], [], threading.Event()

    def work():
        begun.append(True)
        go_on.wait(30)
        ended.append(True)
        return ToolAnswer({})

    async def ask_and_cancel():
        pool = anyio.CapacityLimiter(3)
        while pool.borrowed_tokens < 3 or len(begun) < 3:
            with anyio.move_on_after(0.05):
                await _in_pool(work, pool)
        for _ in range(10):
            with anyio.move_on_after(0.01):
                await _in_pool(work, pool)
        assert len(begun) == 3
        assert pool.borrowed_tokens == 3
        go_on.set()
        for place in range(3):  # free once the threads have ended
            await pool.acquire_on_behalf_of(place)
        assert len(ended) == 3
        pool.release_on_behalf_of(0)
        return await _in_pool(lambda: ToolAnswer({"fine": True}), pool)

    assert anyio.run(ask_and_cancel).table == {"fine": True}
