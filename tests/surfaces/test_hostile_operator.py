"""A hostile client at the other end of any transport: none of its attempts succeeds, and each is on
record."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparring.operations.activity import VerifyActivity, verify_activity
from sparring.operations.activity_log import ActivityLog
from sparring.operations.operation import Caller, Role
from sparring.operations.plans.planning import PlanQuery, PlanRun, plan_run, start_planned
from sparring.operations.run_control import stop_run
from sparring.operations.run_views import RunQuery
from sparring.operations.training import StartTrain, start_train
from sparring.run_folder import RunFolder
from tests.supervised import completed, ended
from tests.surfaces import hostile
from tests.surfaces.operators import ROOT, Operator, Transport, operator
from tests.surfaces.vault import ORDER

pytestmark = [pytest.mark.timeout(900)]
STARTS = 3
PROJECT = """
[settings]
model = "{model}"
max_steps = 1
max_completion_length = 32
validation_cases = 2
cases_per_batch = 1
gradient_accumulation_steps = 1
num_generations = 2

[[lock]]
field = "temperature"
value = 0.8

[budget]
steps = 5
rollouts = 400
hours = 1
runs_at_once = 1
starts_per_day = {starts}
"""


class Vandal(Operator):
    """Keeps what it was answered."""

    def __init__(self, connected: Operator) -> None:
        self.connected = connected
        self.heard: list[str] = []
        self.refusals = 0

    async def ask(self, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        answer = await self.connected.ask(tool, given)
        self.heard.append(json.dumps(answer))
        self.refusals += isinstance(answer.get("error"), dict)
        return answer

    async def attempt(self, each: hostile.Attempt) -> None:
        answer = await self.ask(each.tool, dict(each.given))
        error = answer.get("error")
        assert isinstance(error, dict), f"{each.about}: {each.tool} succeeded: {str(answer)[:300]}"
        assert error["type"] != "Fault", f"{each.about}: {error}"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Path:
    folder = tmp_path_factory.mktemp("vault")
    shutil.copy(ROOT / "tests" / "surfaces" / "vault.py", folder)
    (folder / "notes.txt").write_text("as it was\n")
    (folder / "sparring.toml").write_text(PROJECT.format(model=tiny_folder, starts=STARTS))
    return folder


@pytest.fixture(scope="module")
def trained(original: Path) -> tuple[str, str]:
    """The owner's own training and its proof, which has played the secret."""
    owner = Caller(Role.OWNER, original / "runs", folder=original)
    started = start_train(StartTrain(environment="vault"), owner)
    completed(RunFolder(owner.runs / started.run))
    completed(RunFolder(owner.runs / started.proof))
    return started.run, started.proof


@pytest.fixture
def project(original: Path, trained: tuple[str, str], tmp_path: Path) -> Path:
    """A copy, so that every transport begins with the same budget."""
    copied = tmp_path / "vault"
    # A supervisor that ends removes its reserve.
    shutil.copytree(original, copied, ignore=shutil.ignore_patterns(".reserve"))
    return copied


async def _attack(project: Path, trained: tuple[str, str], over: Transport) -> Vandal:
    training, proof = trained
    other = Caller(Role.OPERATOR, project / "runs", "rival", folder=project)
    foreign = plan_run(PlanRun(environment="vault"), other).plan
    theirs = start_planned(PlanQuery(plan=foreign), other).run
    waiting = plan_run(PlanRun(environment="vault"), other).plan
    async with operator(project, "vandal", over=over) as connected:
        vandal = Vandal(connected)
        stale = (await vandal.call("plan_run", environment="vault", settings={"seed": 1}))["plan"]
        used = (await vandal.call("plan_run", environment="vault"))["plan"]
        await vandal.call("start_run", plan=used)
        for each in hostile.on_locks(used, training):
            await vandal.attempt(each)
        for each in hostile.on_arguments(used, training):
            await vandal.attempt(each)
        for each in hostile.on_secrets(proof, training):
            await vandal.attempt(each)
        for each in hostile.on_others((training, proof, theirs)):
            await vandal.attempt(each)
        (project / "notes.txt").write_text("as it is now\n")
        for each in hostile.on_plans(stale, waiting, used):
            await vandal.attempt(each)
        await vandal.ask("get_results", {"run": proof, "detail": "full"})
        await vandal.ask("compare_runs", {"runs": [training, proof], "detail": "full"})
        await vandal.ask("show_run", {"run": proof, "detail": "full"})
        await vandal.ask("wait_for_run", {"run": proof, "detail": "full"})
        await vandal.ask("list_runs", {"detail": "full"})
        await vandal.ask("describe_environment", {"environment": "vault", "detail": "full"})
        page = await vandal.call("list_rollouts", run=training)
        for line in page["rollouts"]:
            await vandal.ask("show_rollout", {"run": training, "rollout": line["id"]})
        await vandal.ask("read_log", {"run": training, "lines": 200})
        await _spend(vandal)
        for each in hostile.fuzzed(await connected.schemas(), 150, seed=7):
            await vandal.ask(each.tool, dict(each.given))
    async with operator(project, "vandal", over=over) as again:  # a new server has not forgotten
        second = Vandal(again)
        await _spend(second)
        vandal.heard += second.heard
        vandal.refusals += second.refusals
    return vandal


async def _spend(vandal: Vandal) -> None:
    """Many small starts at once, one plan each."""
    plans = [
        (await vandal.call("plan_run", environment="vault", settings={"seed": seed}))["plan"]
        for seed in range(6)
    ]
    await asyncio.gather(*(vandal.ask("start_run", {"plan": plan}) for plan in plans))
    await asyncio.gather(
        *(vandal.ask("check_environment", {"environment": "vault", "cases": 2, "rollouts": 2})
          for _ in range(4))
    )  # fmt: skip


@pytest.mark.parametrize(
    "over",
    [
        "stdio",
        pytest.param("mcp over http", marks=pytest.mark.nightly),
        pytest.param("http api", marks=pytest.mark.nightly),
    ],
)
def test_no_attempt_succeeds_and_each_is_on_record(project, trained, over):
    owner = Caller(Role.OWNER, project / "runs", folder=project)
    vandal = asyncio.run(_attack(project, trained, over))
    assert vandal.refusals >= 400
    heard = "\n".join(vandal.heard)
    assert "SECRET" not in heard, "a held-out case was shown"
    if over != "http api":  # its callers are programs, which show every text as text
        _refuse_orders(vandal.heard)

    runs = [RunFolder(path) for path in owner.runs.iterdir() if (path / "spec.json").is_file()]
    specs = {folder.id: folder.read_spec() for folder in runs}
    started = [
        each for each, spec in specs.items() if not spec.get("after") and each not in trained
    ]
    assert len(started) == STARTS, started
    for spec in specs.values():
        play = {**spec.get("settings", {}), **spec.get("play", {})}
        assert play["temperature"] == 0.8
        assert play["max_completion_length"] == 32
        assert spec["hours"] == 1
        assert spec.get("settings", {}).get("max_steps", 1) == 1

    entries = [each for each in ActivityLog(owner.runs).backwards() if each["who"] == "vandal"]
    refused = [each for each in entries if each["outcome"] in ("refused", "failed")]
    # Of calls that would have changed nothing, sixty an hour are noted; the rest is counted.
    changing = [each for each in refused if "reason" in each and "request" not in each]
    assert changing
    assert len(changing) + 60 <= len(refused) <= vandal.refusals
    assert all(each["reason"] for each in refused)
    assert verify_activity(VerifyActivity(), owner).ok
    for folder in runs:
        stop_run(RunQuery(run=folder.id), owner)
    for folder in runs:
        ended(folder)


def _refuse_orders(heard: list[str]) -> None:
    """What gives orders is never outside of a mark."""

    def look(value: Any) -> None:
        if isinstance(value, dict):
            for name, each in value.items():
                assert ORDER not in name
                if name != "untrusted":
                    look(each)
        elif isinstance(value, list):
            for each in value:
                look(each)
        else:
            assert ORDER not in str(value)

    assert any(ORDER in each for each in heard), "nobody gave orders at all"
    for each in heard:
        look(json.loads(each))
