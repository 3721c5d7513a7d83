"""All that a run would lack on this machine is listed before it starts."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparring import sandbox
from sparring.contracts.errors import PlanRefused
from sparring.operations.doctor import Finding
from sparring.operations.operation import Caller
from sparring.operations.plans import preflight as needs
from sparring.operations.plans.planning import Plan, PlanQuery, PlanRun, plan_run, start_planned
from sparring.operations.plans.preflight import missing_for
from sparring.operations.resolution import resolve_run
from sparring.operations.starting import Started
from sparring.sandbox import Support
from sparring.settings.fields import Kind
from tests.operations.made import make_project, operator_of


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def operator(owner: Caller) -> Caller:
    return operator_of(owner)


@pytest.fixture(autouse=True)
def _complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every package is installed."""
    install_all_but(monkeypatch)


def install_all_but(monkeypatch: pytest.MonkeyPatch, *gone: str) -> None:
    def package(name: str) -> Finding:
        standing = "optional" if name in gone else "warning"
        return Finding(what=name, standing=standing, found="", fix="pip install it")

    monkeypatch.setattr(needs, "package_finding", package)


def lacking(caller: Caller, kind: Kind = "train", **settings: Any) -> dict[str, str]:
    found = missing_for(resolve_run("shop", kind, settings, caller))
    assert all(each.fix for each in found)
    return {each.what: each.standing for each in found}


def planned(caller: Caller, **given: Any) -> Plan:
    return plan_run(PlanRun(environment="shop", **given), caller)


def started(plan: Plan, caller: Caller) -> Started:
    return start_planned(PlanQuery(plan=plan.plan), caller)


def test_a_machine_that_meets_all_requirements_gets_an_empty_list(owner: Caller) -> None:
    """A package of another version than the tested one is no lack."""
    assert lacking(owner) == {}


def test_an_evaluation_does_not_need_the_packages_of_trainings(
    owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_all_but(monkeypatch, "trl", "transformers", "mcp")
    assert lacking(owner, "eval") == {"transformers": "missing"}
    assert lacking(owner, "train") == {"transformers": "missing", "trl": "missing"}


def test_a_sandbox_is_needed_by_environments_that_say_so(
    owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Support(bwrap="", why_not="no bwrap", fix="install it", user="", memory="")
    monkeypatch.setattr(sandbox, "probe", lambda: broken)
    assert lacking(owner) == {}
    run_settings = resolve_run("shop", "train", {}, owner)
    needy = run_settings.environment.description.model_copy(update={"needs_sandbox": True})
    environment = replace(run_settings.environment, description=needy)
    found = missing_for(replace(run_settings, environment=environment))
    assert [(each.what, each.standing, each.fix) for each in found] == [
        ("sandbox", "missing", "install it")
    ]
    free = run_settings.checked.play.model_copy(update={"unsandboxed": True})
    free = replace(run_settings.checked, play=free)
    assert missing_for(replace(run_settings, environment=environment, checked=free)) == ()


def test_a_tracker_that_is_not_there_is_a_warning(
    owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("WANDB_API_KEY", "WANDB_API_KEY_FILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(needs, "find_spec", lambda _: None)
    assert lacking(owner, report_to=["wandb"]) == {"wandb": "warning", "WANDB_API_KEY": "warning"}
    monkeypatch.setenv("WANDB_API_KEY", "planted")
    assert lacking(owner, report_to=["wandb"]) == {"wandb": "warning"}


def test_a_tracker_of_a_plugin_need_not_be_a_module(
    owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "plugin_names", lambda _: ["house-tracker"])
    assert lacking(owner, report_to=["house-tracker"]) == {}


def test_demonstrations_are_a_file_or_a_run(owner: Caller) -> None:
    assert lacking(owner, warm_start={"source": "nowhere"}) == {"warm_start": "missing"}
    (owner.runs / "shop-1").mkdir(parents=True)
    shown = owner.folder / "shown.jsonl"
    shown.write_text("{}\n")
    for source in ("shop-1", str(shown)):
        assert lacking(owner, warm_start={"source": source}) == {}


def test_slurm_is_missed_where_jobs_cannot_be_submitted(
    owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert lacking(owner, launcher="slurm") == {"Slurm": "missing"}
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert lacking(owner, launcher="slurm") == {}


def test_a_plan_lists_all_missing_requirements_and_its_start_is_refused(
    operator: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = {"torch", "trl"}

    def package(name: str) -> Finding:
        standing = "optional" if name in gone else "ok"
        return Finding(what=name, standing=standing, found="", fix="pip install it")

    monkeypatch.setattr(needs, "package_finding", package)
    plan = planned(operator)
    assert not plan.ready
    assert {each.what for each in plan.missing} == gone
    with pytest.raises(PlanRefused, match=r"torch.*trl"):
        started(plan, operator)
