"""Options become a request; a run is started in its project; a verdict becomes an exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.contracts.summaries import AuditSummary, CheckSummary
from sparring.operations.operation import Caller, Role
from sparring.operations.starting import Started
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_state
from sparring.run_folder.files import write_json
from sparring.runs.lifecycle import RunState
from sparring.surfaces.cli import starting
from tests.operations.made import make_project, spec_of
from tests.summaries import completed


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    made = make_project(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    return made


def test_the_caller_is_the_owner_of_the_project_in_the_current_folder(owner: Caller) -> None:
    here = starting.owner()
    assert (here.role, here.runs.resolve()) == (Role.OWNER, owner.runs.resolve())
    assert starting.owner("elsewhere").runs == Path("elsewhere")


def test_settings_are_the_options_that_were_given_and_the_assignments() -> None:
    given = {"max_steps": 5, "lora": False, "seed": None}
    assert starting.settings_from(given, ["lora.r=8", "beta=0.1", "config.mood=glad"]) == {
        "max_steps": 5,
        "lora": {"r": 8},
        "beta": 0.1,
        "config": {"mood": "glad"},
    }


def test_servers_need_the_name_of_a_model_and_without_servers_there_are_none() -> None:
    assert starting.servers_from("tiny", None, None, "KEY", None) is None
    with pytest.raises(InvalidInput, match="pass --model NAME"):
        starting.servers_from(None, ["http://a/v1"], None, "KEY", None)
    made = starting.servers_from("m", ["http://a/v1", "http://b/v1"], None, "KEY", "qwen3")
    assert made is not None
    assert (made["kind"], made["family"]) == ("endpoint", "qwen3")
    server = {"model": "m", "key_variable": "KEY"}
    assert made["endpoints"] == [
        {"base_url": "http://a/v1", **server},
        {"base_url": "http://b/v1", **server},
    ]
    with pytest.raises(InvalidInput, match="exclude each other"):
        starting.servers_from("m", ["http://a/v1"], "http://c", "KEY", None)
    vllm = starting.servers_from("m", None, "http://c", "KEY", None)
    assert vllm is not None
    assert (vllm["kind"], len(vllm["endpoints"])) == ("vllm", 1)


def test_a_model_without_an_address_is_one_of_openrouter_and_needs_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    monkeypatch.delenv("OPENROUTER_API_KEY_FILE", raising=False)
    assert starting.models_from(None, "KEY") is None
    assert starting.models_from(["a@b@http://c/v1"], "KEY") == [
        {"model": "a@b", "base_url": "http://c/v1", "key_variable": "KEY"}
    ]
    with pytest.raises(InvalidInput, match="names no URL; write MODEL@http"):
        starting.models_from(["m@localhost:8000"], "KEY")
    with pytest.raises(InvalidInput, match="OPENROUTER_API_KEY is not set: set it, or write"):
        starting.models_from(["org/large"], "KEY")
    monkeypatch.setenv("OPENROUTER_API_KEY", "secret")
    made = starting.models_from(["org/large"], "KEY")
    assert made is not None
    assert made[0]["key_variable"] == "OPENROUTER_API_KEY"
    assert "secret" not in json.dumps(made)


def test_a_detached_training_has_the_settings_that_were_given(
    owner: Caller, capsys: pytest.CaptureFixture[str]
) -> None:
    request = {"environment": "shop", "settings": {"max_steps": 3}, "prove": True}
    starting.train(request, None, detach=True, as_json=True)
    started = json.loads(capsys.readouterr().out)
    assert spec_of(owner, started["run"])["settings"]["max_steps"] == 3
    assert spec_of(owner, started["proof"])["after"] == started["run"]


def test_a_detached_evaluation_plays_the_split_that_was_given(
    owner: Caller, capsys: pytest.CaptureFixture[str]
) -> None:
    request = {"environment": "shop", "split": "training", "cases": 2, "settings": {}}
    starting.evaluate(request, None, detach=True, as_json=False)
    spec = spec_of(owner, capsys.readouterr().out.strip())
    assert (spec["kind"], spec["split"], spec["cases"]) == ("eval", "training", 2)


def finish_with(summary: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that are followed end at once, with this summary."""

    def begin(started: Started, *_: Any, **__: Any) -> None:
        folder = RunFolder(Path(started.folder))
        write_json(folder.summary, summary)
        append_state(folder, RunState.STARTING, author="supervisor", epoch=1)
        append_state(folder, RunState.COMPLETED, author="supervisor", epoch=1)

    monkeypatch.setattr(starting, "begin", begin)


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize(("verdict", "code"), [("learnable", 0), ("too hard", 110)])
def test_a_check_is_fine_only_if_the_environment_is_learnable(
    monkeypatch: pytest.MonkeyPatch, verdict: str, code: int
) -> None:
    finish_with(completed(CheckSummary, {"verdict": verdict}), monkeypatch)
    request = {"environment": "shop", "others": [], "settings": {}}
    assert starting.check(request, None, detach=False, as_json=False) == code
    assert starting.check(request, None, detach=True, as_json=False) == 0


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize(("is_grave", "code"), [(False, 0), (True, 110)])
def test_an_audit_is_fine_unless_a_finding_is_grave(
    monkeypatch: pytest.MonkeyPatch, is_grave: bool, code: int
) -> None:
    findings = [{"is_grave": False}, {"is_grave": is_grave}]
    finish_with(completed(AuditSummary, {"audit": findings}), monkeypatch)
    request = {"environment": "shop", "settings": {}}
    assert starting.audit(request, None, detach=False, as_json=False) == code


def test_who_only_reads_starts_nothing_in_a_folder_of_somebody_else(owner: Caller) -> None:
    assert starting.reader().can_supervise
    assert starting.reader(str(owner.runs)).can_supervise  # the project's own, named
    assert not starting.reader("elsewhere").can_supervise
    assert starting.owner("elsewhere").can_supervise  # who acts means the runs of that folder
