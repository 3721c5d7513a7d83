"""A stored plan is read as it was made, starts one run, and is refused once it was edited."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import PlanRefused
from sparring.operations.operation import Caller
from sparring.operations.plans.planning import Plan, PlanQuery, PlanRun, plan_run, start_planned
from sparring.operations.plans.store import Plans, StoredPlan, changes, digest_of, plain
from sparring.operations.starting import Started
from sparring.run_folder.files import write_json
from tests.operations.made import make_project, operator_of

TABLES = st.dictionaries(
    st.sampled_from("abcd"), st.none() | st.booleans() | st.integers() | st.text(max_size=3)
)


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def operator(owner: Caller) -> Caller:
    return operator_of(owner)


def planned(caller: Caller, **given: Any) -> Plan:
    return plan_run(PlanRun(environment="shop", **given), caller)


def started(plan: Plan, caller: Caller) -> Started:
    return start_planned(PlanQuery(plan=plan.plan), caller)


def add(plans: Plans, **resolved: Any) -> StoredPlan:
    return plans.add("coach", "operator", {"environment": "shop"}, resolved, "")


def test_a_plan_is_read_as_it_was_added(tmp_path: Path) -> None:
    plan = add(Plans(tmp_path), spec={"steps": 3}, files={"a": Path("x")})
    assert Plans(tmp_path).read(plan.plan) == plan
    assert plan.resolved["spec"] == {"steps": 3}


def test_two_plans_of_the_same_content_are_two_plans(tmp_path: Path) -> None:
    plans = Plans(tmp_path)
    first, second = add(plans, spec=1), add(plans, spec=1)
    assert first.plan != second.plan
    assert first.plan[:21] == second.plan[:21]  # both begin with the digest


def test_a_plan_of_a_torn_file_is_refused(tmp_path: Path) -> None:
    plan = add(Plans(tmp_path), spec=1)
    (path,) = tmp_path.rglob(f"{plan.plan}.json")
    path.write_text(path.read_text()[:40])
    with pytest.raises(PlanRefused, match="cannot be read; plan the run again"):
        Plans(tmp_path).read(plan.plan)


def test_a_plan_is_claimed_once_and_says_by_which_run(tmp_path: Path) -> None:
    plans = Plans(tmp_path)
    name = add(plans, spec=1).plan
    assert plans.started_as(name) == ""
    plans.claim(name, "shop-1")
    assert plans.started_as(name) == "shop-1"
    with pytest.raises(PlanRefused, match="was started already, as run shop-1"):
        Plans(tmp_path).claim(name, "shop-2")
    assert plans.started_as(name) == "shop-1"


@given(TABLES, TABLES)
def test_changes_are_named_if_and_only_if_something_differs(
    before: dict[str, Any], now: dict[str, Any]
) -> None:
    def values(table: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in table.items() if value is not None}

    named = set(filter(None, changes(before, now).split(", ")))
    old, new = values(before), values(now)
    assert named == {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def test_of_many_changes_the_first_are_named_and_the_rest_counted() -> None:
    now = {"spec": {"settings": {f"s{number}": 1 for number in range(8)}}}
    assert changes({}, now) == "s0, s1, s2, s3, s4, s5 and 2 more"
    assert changes({"files": {"x.py": "1"}}, {"files": {"x.py": "2"}}) == "x.py"


@given(TABLES)
def test_a_digest_does_not_depend_on_the_order_of_names(table: dict[str, Any]) -> None:
    turned = dict(reversed(table.items()))
    assert digest_of(plain(table)) == digest_of(plain(turned))
    assert digest_of(table) != digest_of({**table, "more": 1})


def test_a_plan_that_somebody_rewrote_is_no_plan(operator: Caller) -> None:
    plan = planned(operator)
    place = operator.runs / ".sparring" / "plans" / "coach" / f"{plan.plan}.json"
    content = json.loads(place.read_text())
    content["resolved"]["spec"]["settings"]["max_steps"] = 5000
    write_json(place, content)
    with pytest.raises(PlanRefused, match="was changed on disk"):
        started(plan, operator)


@pytest.mark.parametrize("name", ["plan-1", "../x", "plan-" + "0" * 16 + "-000000", "", "/etc"])
def test_a_name_that_is_no_plan_is_refused(operator: Caller, name: str) -> None:
    with pytest.raises(PlanRefused, match="there is no plan"):
        start_planned(PlanQuery(plan=name), operator)


def test_old_plans_are_forgotten(operator: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    from sparring.operations.plans import store as kept

    monkeypatch.setattr(kept, "_MAX_PLANS", 3)
    made = []
    for seed in range(5):
        made.append(planned(operator, settings={"seed": seed}))
        place = operator.runs / ".sparring" / "plans" / "coach" / f"{made[-1].plan}.json"
        os.utime(place, (seed, seed))
    with pytest.raises(PlanRefused, match="there is no plan"):
        started(made[0], operator)
    assert started(made[4], operator).run
