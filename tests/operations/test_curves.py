"""Curves are read once; later only what is new is read, from cursors."""

from __future__ import annotations

from pathlib import Path

from sparring.operations.curves import (
    ChangesQuery,
    CurvesQuery,
    TrendsQuery,
    run_changes,
    run_curves,
    run_trends,
)
from sparring.operations.operation import Caller, Role
from sparring.run_folder.files import append_line
from tests.surfaces.web.viewed import (
    HIDDEN,
    SECRET,
    TRAINING,
    make_secret,
    make_training,
    owner_in,
)


def test_columns_have_one_value_a_step(tmp_path: Path) -> None:
    folder = make_training(tmp_path / "runs", steps=30)
    append_line(folder.metrics, {"attempt": 1, "step": 30, "validation/reward": 0.5})
    curves = run_curves(CurvesQuery(run=TRAINING, points=10), owner_in(tmp_path))
    assert len(curves.steps) == 10
    assert (curves.steps[0], curves.steps[-1]) == (1, 30)
    assert all(len(values) == 10 for values in curves.columns.values())
    assert curves.columns["validation/reward"][:-1] == (None,) * 9
    assert curves.columns["validation/reward"][-1] == 0.5


def test_changes_begin_at_the_cursor(tmp_path: Path) -> None:
    folder, owner = make_training(tmp_path / "runs"), owner_in(tmp_path)
    curves = run_curves(CurvesQuery(run=TRAINING), owner)
    query = ChangesQuery(run=TRAINING, metrics=curves.cursor, events=curves.events_cursor)
    assert run_changes(query, owner).rows == ()
    append_line(folder.metrics, {"attempt": 1, "step": 5, "reward": 0.5})
    changes = run_changes(query, owner)
    assert [row["step"] for row in changes.rows] == [5]
    assert changes.new_events == ()
    again = ChangesQuery(run=TRAINING, metrics=changes.metrics, events=changes.events)
    assert run_changes(again, owner).rows == ()


def test_trends_are_short(tmp_path: Path) -> None:
    make_training(tmp_path / "runs", steps=100)
    rewards = run_trends(TrendsQuery(runs=(TRAINING,)), owner_in(tmp_path)).rewards[TRAINING]
    assert len(rewards) == 40
    assert (rewards[0], rewards[-1]) == (0.1, 10.0)


def test_metrics_and_messages_about_held_out_cases_are_hidden(tmp_path: Path) -> None:
    make_secret(tmp_path / "runs")
    viewer = Caller(Role.VIEWER, tmp_path / "runs", "vera", folder=tmp_path)
    shown = [
        run_curves(CurvesQuery(run=SECRET), viewer).model_dump_json(),
        run_changes(ChangesQuery(run=SECRET), viewer).model_dump_json(),
    ]
    assert not any(HIDDEN in text for text in shown)
    assert HIDDEN in run_changes(ChangesQuery(run=SECRET), owner_in(tmp_path)).model_dump_json()
