"""Plans, limits, the activity log and the tool server, as the owner sees them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput, PlanRefused
from sparring.operations.operation import Caller
from sparring.surfaces.cli import operating
from sparring.surfaces.tools.catalogue import tools_for
from tests.operations.made import edit_project, make_project, operator_of

QUERY: dict[str, Any] = {"count": 20, "who": "", "refused": False}
PLAN = {"environment": "shop", "kind": "train", "prove": False}


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    made = make_project(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    return made


def refuse(owner: Caller, **given: Any) -> None:
    operator = operator_of(owner)
    assert tools_for(operator.role)["show_run"].call(given, operator).is_error


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_the_configuration_starts_this_python_in_this_project(
    owner: Caller, capsys: pytest.CaptureFixture[str]
) -> None:
    operating.print_config("coach", "operator", ".", None)
    server = json.loads(capsys.readouterr().out)["mcpServers"]["sparring"]
    assert server["command"] == sys.executable
    folder = str(owner.folder.resolve())
    assert server["args"] == ["-m", "sparring", "mcp", "--project", folder, "--as", "coach"]
    operating.print_config("coach", "viewer", ".", "other")
    arguments = json.loads(capsys.readouterr().out)["mcpServers"]["sparring"]["args"]
    assert arguments[-4:] == ["--role", "viewer", "--runs", f"{folder}/other"]


def test_nobody_serves_as_the_owner_or_where_there_is_no_project(owner: Caller) -> None:
    with pytest.raises(InvalidInput, match="--role must be operator or viewer, not 'owner'"):
        operating.print_tools("owner")
    with pytest.raises(InvalidInput, match="there is no such folder"):
        operating.print_config("coach", "operator", "nowhere", None)


def test_a_plan_is_shown_with_its_cost_and_how_to_start_it(
    owner: Caller, capsys: pytest.CaptureFixture[str]
) -> None:
    operating.make_plan(PLAN, ["max_steps=4"], None, as_json=False)
    shown = lines(capsys)
    plan = shown[0].removeprefix("plan ")
    assert shown[1] == "what train shop with tiny"
    assert "steps 4" in shown
    assert any(line.startswith("rollouts ") and "at most" in line for line in shown)
    assert shown[-1] == f"sparring plan start {plan}"
    assert not list(owner.runs.glob("shop-*"))


@pytest.mark.usefixtures("owner")
def test_a_plan_starts_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    operating.make_plan(PLAN, [], None, as_json=True)
    plan = json.loads(capsys.readouterr().out)["plan"]
    operating.revise_plan(plan, "temperature", "0.5", None, as_json=True)
    revised = json.loads(capsys.readouterr().out)
    assert revised["settings"]["temperature"] == 0.5
    operating.start_plan(revised["plan"], None, detach=True, as_json=False)
    assert capsys.readouterr().out.startswith("shop-")
    with pytest.raises(PlanRefused):
        operating.start_plan(revised["plan"], None, detach=True, as_json=False)


def test_limits_are_an_operators_and_what_is_not_limited_says_so(
    owner: Caller, capsys: pytest.CaptureFixture[str]
) -> None:
    operating.limits(None, as_json=False)
    shown = lines(capsys)
    assert "steps per run 50" in shown
    assert "hours per run no limit" in shown
    assert "starts per day 5 (0 used)" in shown
    assert "unlocked by may_set max_steps, config.size" in shown
    assert "locked for everybody beta" in shown
    edit_project(owner, 'may_set = ["max_steps", "config.size"]', "")
    operating.limits(None, as_json=False)
    assert "unlocked by may_set nothing" in lines(capsys)


def test_the_log_says_who_was_refused_what_and_why(
    owner: Caller, capsys: pytest.CaptureFixture[str]
) -> None:
    operating.show_log(QUERY, None, as_json=False)
    assert capsys.readouterr().out == "the activity log is empty\n"
    refuse(owner, run="gone", detail="\x1b[2J")
    operating.show_log(QUERY, None, as_json=False)
    (line,) = lines(capsys)
    assert "coach refused " in line
    assert "detail must be short or full" in line
    assert "\x1b" not in line


def test_a_log_that_was_changed_is_not_intact(
    owner: Caller, capsys: pytest.CaptureFixture[str]
) -> None:
    refuse(owner, run="gone", detail="all")
    assert operating.verify_log("", None, as_json=False) == 0
    assert "is intact: 1 entries" in capsys.readouterr().out
    assert operating.verify_log("", None, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    log = Path(told["file"])
    log.write_text(log.read_text().replace("coach", "couch"))
    assert operating.verify_log("", None, as_json=False) == 1
    printed = capsys.readouterr()
    assert "is NOT intact" in printed.out
    assert printed.err
    assert operating.verify_log(told["digest"], None, as_json=True) == 1
