"""What was typed becomes a request; a run is started in its project; a verdict is an exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.summaries import AuditSummary, CheckSummary, ProveSummary
from sparring.operations.starting import Started
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_state
from sparring.run_folder.files import write_json
from sparring.runs.lifecycle import RunState
from sparring.surfaces.cli import starting
from sparring.surfaces.cli.callers import owner
from tests.operations.made import make_project, spec_of
from tests.operations.test_shipping import proved
from tests.summaries import completed
from tests.surfaces.cli.terminal import Terminal


@pytest.fixture(autouse=True)
def _has_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "of-the-server")


@pytest.fixture
def terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    return Terminal(make_project(tmp_path, monkeypatch).folder, monkeypatch, capsys)


def test_servers_need_the_name_of_a_model_and_exclude_each_other(terminal: Terminal) -> None:
    endpoint = ["eval", "shop", "--endpoint", "http://a/v1"]
    unnamed = terminal.type(*endpoint)
    assert (unnamed.code, "pass --model NAME" in unnamed.err) == (2, True)
    both = terminal.type(*endpoint, "--model", "m", "--vllm", "http://c")
    assert (both.code, "exclude each other" in both.err) == (2, True)
    keyed = terminal.type("eval", "shop", "--model", "m", "--endpoint", "http://me@a/v1")
    assert keyed.code == 2
    assert keyed.err.startswith("sparring: the address must not carry a user, a key")
    assert "must not carry a user" in keyed.err


@pytest.mark.parametrize(
    ("servers", "kind", "count"),
    [
        (["--endpoint", "http://a/v1", "--endpoint", "http://b/v1"], "endpoint", 2),
        (["--vllm", "http://c"], "vllm", 1),
    ],
)
def test_an_evaluation_is_played_by_the_servers_that_are_named(
    terminal: Terminal, servers: list[str], kind: str, count: int
) -> None:
    words = ["eval", "shop", "--model", "m", *servers, "--key-variable", "KEY"]
    run = terminal.type(*words, "--family", "qwen3", "--cases", 2, "--detach").out.strip()
    policy = spec_of(owner(), run)["policy"]
    assert (policy["kind"], policy["model"], policy["family"]) == (kind, "m", "qwen3")
    assert [each["key_variable"] for each in policy["endpoints"]] == ["KEY"] * count


def test_a_detached_training_has_the_settings_that_were_typed_and_a_proof(
    terminal: Terminal,
) -> None:
    words = ["--max-steps", 3, "--lora", "--set", "lora.r=8", "--set", "config.size=4"]
    started = terminal.type("train", "shop", *words, "--detach", "--json").json
    spec = spec_of(owner(), started["run"])
    assert (spec["settings"]["max_steps"], spec["settings"]["lora"]) == (3, {"r": 8})
    assert spec["config"]["size"] == 4
    assert spec_of(owner(), started["proof"])["after"] == started["run"]


def test_a_detached_evaluation_plays_the_split_that_was_typed(terminal: Terminal) -> None:
    words = ["eval", "shop", "--split", "training", "--cases", 2, "--detach"]
    spec = spec_of(owner(), terminal.type(*words).out.strip())
    assert (spec["kind"], spec["split"], spec["cases"]) == ("eval", "training", 2)


def finish_with(summary: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that are followed end at once, with this summary."""

    def begin(started: Started, *_: Any, **__: Any) -> None:
        folder = RunFolder(Path(started.folder))
        write_json(folder.summary, summary)
        append_state(folder, RunState.STARTING, author="supervisor", epoch=1)
        append_state(folder, RunState.COMPLETED, author="supervisor", epoch=1)

    monkeypatch.setattr(starting, "begin", begin)


def exit_codes(terminal: Terminal, *words: str) -> tuple[int, int, int]:
    """Return the codes of a command, of the strict one, and of one that is detached."""
    strict = [*words, "--strict"]
    typed = (terminal.type(*each) for each in (words, strict, [*strict, "--detach"]))
    plain, followed, detached = (each.code for each in typed)
    return plain, followed, detached


@pytest.mark.parametrize(("verdict", "code"), [("learnable", 0), ("too hard", 110)])
def test_a_check_is_fine_only_if_the_environment_is_learnable(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, verdict: str, code: int
) -> None:
    finish_with(completed(CheckSummary, {"verdict": verdict}), monkeypatch)
    assert exit_codes(terminal, "check", "shop", "--compare", "none") == (0, code, 0)


@pytest.mark.parametrize(("is_grave", "code"), [(False, 0), (True, 110)])
def test_an_audit_is_fine_unless_a_finding_is_grave(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, is_grave: bool, code: int
) -> None:
    findings = [{"is_grave": False}, {"is_grave": is_grave}]
    finish_with(completed(AuditSummary, {"audit": findings}), monkeypatch)
    assert exit_codes(terminal, "audit", "shop") == (0, code, 0)


@pytest.mark.parametrize(("verdict", "code"), [("better", 0), ("not shown", 110)])
def test_a_proof_exits_with_its_verdict(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, verdict: str, code: int
) -> None:
    words = ["prove", proved(owner()), "--split", "validation", "--picked-from", 3]
    detached = terminal.type(*words, "--detach")
    spec = spec_of(owner(), detached.out.strip())
    terminal.type("run", "stop", detached.out.strip())
    assert (spec["split"], spec["picked_from"], spec["rollouts"]) == ("validation", 3, 4)
    summary = {"verdict": verdict, "is_good": verdict == "better"}
    finish_with(completed(ProveSummary, summary), monkeypatch)
    assert (detached.code, terminal.type(*words).code) == (0, code)


def test_a_check_plays_what_the_options_say_beside_the_models_that_are_named(
    terminal: Terminal,
) -> None:
    given = ["--cases", 3, "--rollouts", 8, "--num-generations", 2, "--dry-steps", 0]
    compare = ["--compare", "large@http://a/v1", "--key-variable", "KEY", "--other-cases", 1]
    run = terminal.type("check", "shop", *given, *compare, "--detach").out.strip()
    spec = spec_of(owner(), run)
    assert (spec["kind"], spec["cases"], spec["rollouts"]) == ("check", 3, 8)
    (other,) = spec["others"]
    assert (other["model"], other["key_variable"]) == ("large", "KEY")


def test_a_check_compared_with_none_plays_no_other_model(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "secret")
    run = terminal.type("check", "shop", "--compare", "none", "--detach").out.strip()
    assert spec_of(owner(), run)["others"] == []
    both = terminal.type("check", "shop", "--compare", "none", "--compare", "m@http://a/v1")
    assert (both.code, "--compare none excludes other models" in both.err) == (2, True)


def test_an_audit_is_a_run_of_its_own(terminal: Terminal) -> None:
    run = terminal.type("audit", "shop", "--cases", 4, "--detach", "--json").json["run"]
    spec = spec_of(owner(), run)
    assert (spec["kind"], spec["cases"]) == ("audit", 4)


def test_a_proof_of_nothing_is_refused(terminal: Terminal) -> None:
    assert terminal.type("prove", "nobody").code == 102


def test_lists_are_separated_by_commas(terminal: Terminal) -> None:
    run = proved(owner())
    given = ["--to", "model", "--form", "merged, GGUF", "--quant", "q8_0,f16", "--compare"]
    typed = terminal.type("ship", run, *given, "--detach", "--json")
    spec = spec_of(owner(), typed.json["run"])
    assert spec["forms"] == ["merged", "gguf"]
    assert spec["quantizations"] == ["q8_0", "f16"]
    assert spec["compare"]


def test_an_unknown_form_is_refused_with_the_known_ones(terminal: Terminal) -> None:
    run = proved(owner())
    typed = terminal.type("ship", run, "--form", "zip")
    assert typed.code == 2
    assert "adapter" in typed.err


def test_a_try_plays_ten_validation_cases_and_needs_no_proof(terminal: Terminal) -> None:
    run = proved(owner(), "not shown")
    typed = terminal.type("ship", run, "--try", "--detach", "--json")
    spec = spec_of(owner(), typed.json["run"])
    assert (spec["forms"], spec["cases"], spec["validation_cases"]) == (["gguf"], 0, 10)
    assert spec["trial"]


def test_a_try_with_a_folder_is_refused(terminal: Terminal) -> None:
    typed = terminal.type("ship", proved(owner()), "--try", "--to", "model")
    assert typed.code == 2
    assert "--try writes no folder" in typed.err
