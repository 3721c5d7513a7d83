"""An evaluation is a run of the environment's settings; servers and held-out cases are the
owner's."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.cases import Split
from sparring.contracts.errors import LockedField, NotPermitted, OverBudget
from sparring.contracts.specs import EndpointSpec, EvalSpec, PolicySpec
from sparring.operations.evaluating import StartEval, start_eval
from sparring.operations.operation import Caller
from sparring.operations.resolution import resolve_run
from tests.operations.made import edit_project, make_project, operator_of, spec_of

SERVERS = PolicySpec(
    model="other", endpoints=(EndpointSpec(base_url="http://127.0.0.1:1/v1", model="other"),)
)


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def operator(owner: Caller) -> Caller:
    return operator_of(owner)


def test_an_evaluation_plays_validation_cases_with_the_environments_settings(
    operator: Caller,
) -> None:
    request = StartEval(environment="shop", cases=4, settings={"temperature": 0.2})
    spec = EvalSpec.model_validate(spec_of(operator, start_eval(request, operator).run))
    assert (spec.split, spec.cases, spec.policy.model) == (Split.VALIDATION, 4, "tiny")
    assert (spec.play.temperature, spec.play.max_completion_length) == (0.2, 77)


@pytest.mark.parametrize("given", [{"split": Split.HELD_OUT}, {"servers": SERVERS}])
def test_servers_and_held_out_cases_are_the_owners_to_choose(
    owner: Caller, operator: Caller, given: dict[str, object]
) -> None:
    request = StartEval.model_validate({"environment": "shop", "cases": 2, **given})
    with pytest.raises(NotPermitted, match="only the owner may choose servers or play held-out"):
        start_eval(request, operator)
    assert not list(owner.runs.glob("shop-*"))
    spec = spec_of(owner, start_eval(request, owner).run)
    assert spec["split"] == request.split.value
    assert (spec["policy"]["model"] == "other") is (request.servers is not None)


def test_servers_play_with_the_settings_for_thinking(owner: Caller) -> None:
    request = StartEval.model_validate(
        {"environment": "shop", "cases": 2, "servers": SERVERS, "settings": {"thinking": "off"}}
    )
    spec = spec_of(owner, start_eval(request, owner).run)
    assert (spec["policy"]["thinking"], spec["policy"]["model"]) == ("off", "other")


@pytest.mark.parametrize(("settings", "thinking"), [({}, "off"), ({"thinking": "on"}, "on")])
def test_thinking_that_comes_with_servers_yields_only_to_the_command(
    owner: Caller, settings: dict[str, str], thinking: str
) -> None:
    servers = {**SERVERS.model_dump(include={"model", "endpoints"}), "thinking": "off"}
    request = StartEval.model_validate(
        {"environment": "shop", "cases": 2, "servers": servers, "settings": settings}
    )
    assert spec_of(owner, start_eval(request, owner).run)["policy"]["thinking"] == thinking


def test_a_lock_on_the_model_holds_for_servers_too(owner: Caller) -> None:
    edit_project(owner, "[budget]", '[[lock]]\nfield = "model"\nvalue = "tiny"\n[budget]')
    with pytest.raises(LockedField, match="model is locked"):
        start_eval(StartEval(environment="shop", cases=2, servers=SERVERS), owner)


def test_an_evaluation_beyond_the_budget_is_refused_before_it_is_a_run(owner: Caller) -> None:
    run_settings = resolve_run("shop", "eval", {"num_generations": 10}, owner)
    assert run_settings.spec(EvalSpec, cases=300).max_rollouts == 3000
    with pytest.raises(OverBudget, match="could play 3,010"):
        run_settings.spec(EvalSpec, cases=301)
