"""The owner sees all plans and refuses one; a refused plan cannot be started."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.errors import NotPermitted, PlanRefused
from sparring.operations.plans.planning import PlanQuery, PlanRun, plan_run, start_planned
from sparring.operations.plans.reviewing import (
    ListPlans,
    RefusePlan,
    list_plans,
    refuse_plan,
    show_plan,
)
from tests.operations.handmade import agent_in, make_free_project, owner_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_free_project(tmp_path, monkeypatch)
    return tmp_path


def test_plans_are_listed_shown_and_refused(folder: Path) -> None:
    agent, owner = agent_in(folder), owner_of(folder)
    plan = plan_run(PlanRun(environment="shop"), agent)
    (line,) = list_plans(ListPlans(), owner).plans
    assert (line.plan, line.author, line.environment) == (plan.plan, "agent", "shop")
    shown = show_plan(PlanQuery(plan=plan.plan), owner)
    assert shown.cost == plan.cost
    assert shown.settings == plan.settings
    refused = refuse_plan(RefusePlan(plan=plan.plan, reason="too long"), owner)
    assert refused.is_refused
    with pytest.raises(PlanRefused, match=r"the owner refused plan .*: too long"):
        start_planned(PlanQuery(plan=plan.plan), agent)
    with pytest.raises(NotPermitted):
        refuse_plan(RefusePlan(plan=plan.plan), agent)


def test_an_operator_sees_its_own_plans_only(folder: Path) -> None:
    plan_run(PlanRun(environment="shop"), owner_of(folder))
    assert list_plans(ListPlans(), agent_in(folder)).plans == ()
