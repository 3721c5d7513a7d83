"""What `sparring run …` does with runs that have ended, one of each kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import InvalidInput, RunFailed
from sparring.surfaces.cli import runs
from tests.surfaces.cli.terminal import CHECK, EVAL, PROOF, STOPPED, TRAIN, copy_samples

ALL: dict[str, Any] = {"states": (), "environment": "", "kind": "", "after": "", "count": 20}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = copy_samples(tmp_path / "porter", monkeypatch)
    monkeypatch.chdir(made)
    monkeypatch.setenv("COLUMNS", "200")
    return made


def test_a_page_of_runs_names_the_next_one(capsys: pytest.CaptureFixture[str]) -> None:
    runs.list_all(ALL | {"count": 2}, None, as_json=False)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["run", "kind", "state", "progress", "reward", "time", "started"]
    assert [line.split()[0] for line in shown[1:3]] == [STOPPED, "audit-bell-20261116-184545-5817"]
    assert shown[3].startswith("more: --after ")
    after = shown[3].removeprefix("more: --after ").strip()
    runs.list_all(ALL | {"after": after}, None, as_json=True)
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 5


def test_no_runs_at_all_and_none_that_match_are_told_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs.list_all(ALL | {"kind": "train", "environment": "shop"}, None, as_json=False)
    assert capsys.readouterr().out == "no runs match\n"
    runs.list_all(ALL, "elsewhere", as_json=False)
    assert capsys.readouterr().out == "no runs; `sparring train NAME` starts one\n"


NAMES = ("run", "kind", "state", "progress", "reward", "time", "started")


@given(st.lists(st.lists(st.text("x", max_size=30), min_size=7, max_size=7), min_size=1),
       st.integers(1, 200))  # fmt: skip
def test_columns_are_left_out_until_the_rest_fits_but_never_the_id_or_the_state(
    cells: list[list[str]], width: int
) -> None:
    rows: list[Any] = [dict(zip(NAMES, each, strict=True)) for each in cells]
    chosen = runs._columns(rows, width)
    assert {"run", "state"} <= set(chosen)
    assert chosen == [name for name in NAMES if name in chosen]
    needed = sum(max(len(name), *(len(row[name]) for row in rows)) + 2 for name in chosen) - 2
    assert needed <= width or set(chosen) == {"run", "state"}


def test_a_run_is_shown_with_its_state_and_its_processes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.show(STOPPED, None, as_json=False)
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == f"{STOPPED}  stopped"
    assert "bell (train)" in shown
    assert str(project / "runs" / STOPPED) in shown
    assert "logs/attempt-1/worker.log" in shown


def test_results_are_the_summary_the_history_and_the_weights(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs.results(TRAIN, 10, None, as_json=False)
    shown = capsys.readouterr().out
    assert "validation at step 2" in shown
    assert "got_in" in shown
    assert "best checkpoint: " in shown
    assert "checkpoints/step-2" in shown


def test_a_run_without_a_summary_says_why(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "runs" / STOPPED / "report" / "summary.json").unlink()
    runs.results(STOPPED, 10, None, as_json=False)
    assert f"{STOPPED} is stopped and has no summary" in capsys.readouterr().out


@pytest.mark.parametrize(("run", "code"), [(EVAL, 0), (STOPPED, 103)])
def test_waiting_for_what_has_ended_gives_its_code_at_once(
    run: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {"is_for_news": False, "cursor": None}
    assert runs.wait(run, None, None, **given, as_json=False) == code
    shown = capsys.readouterr().out
    assert ("stopped" if code else "completed") in shown
    assert runs.wait(run, 0.0, None, **given, as_json=True) == code
    assert json.loads(capsys.readouterr().out)["has_ended"]


def test_news_are_all_that_happened_after_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    given: dict[str, Any] = {"is_for_news": True, "as_json": True}
    runs.wait(TRAIN, 0.0, None, **given, cursor=0)
    first = json.loads(capsys.readouterr().out)
    assert "checkpoint" in [each["event"] for each in first["news"]]
    runs.wait(TRAIN, 0.0, None, **given, cursor=first["cursor"])
    assert json.loads(capsys.readouterr().out)["news"] == []


def test_a_completed_run_is_not_resumed_but_named(capsys: pytest.CaptureFixture[str]) -> None:
    request = {"run": EVAL, "accept_changes": False, "take_over": False}
    runs.resume(request, None, detach=True, as_json=False)
    printed = capsys.readouterr()
    assert printed.out == f"{EVAL}\n"
    assert "the run is already completed" in printed.err


def test_watching_a_training_shows_it_and_its_proof(capsys: pytest.CaptureFixture[str]) -> None:
    runs.watch(TRAIN, None, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["run"], shown["proof"]["run"]) == (TRAIN, PROOF)
    runs.watch(CHECK, None, as_json=False)
    assert "broken: 44 of 48" in capsys.readouterr().out


def test_watching_what_was_stopped_raises_how_it_ended() -> None:
    with pytest.raises(RunFailed) as raised:
        runs.watch(STOPPED, None, as_json=False)
    assert (raised.value.name, raised.value.exit_code) == ("Stopped", 103)
    assert f"sparring run resume {STOPPED}" in str(raised.value)


def test_deleting_needs_confirmation(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidInput, match=f"sparring run delete {STOPPED} --yes"):
        runs.delete(STOPPED, None, is_sure=False, as_json=True)
    assert (project / "runs" / STOPPED).exists()
    runs.delete(STOPPED, None, is_sure=True, as_json=False)
    assert capsys.readouterr().out.startswith(f"deleted {STOPPED} (")
    assert not (project / "runs" / STOPPED).exists()


def test_an_index_is_built_from_the_folders(capsys: pytest.CaptureFixture[str]) -> None:
    runs.reindex(None, as_json=False)
    assert capsys.readouterr().out == "7 runs\n"


def test_one_run_cannot_be_compared() -> None:
    with pytest.raises(InvalidInput, match=f"at least two runs to compare; you named only {EVAL}"):
        runs.compare([EVAL], None, as_json=False)
