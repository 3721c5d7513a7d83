"""Checkpoints are listed by step, and the best of them is the one that validated best."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sparring.run_folder.checkpoint_list import (
    DIFFICULTY,
    MANIFEST,
    Checkpoint,
    best_of,
    candidate_of,
    list_checkpoints,
    step_of,
)
from sparring.run_folder.files import write_json


def save(folder: Path, step: int, score: float | None = None) -> Path:
    place = folder / f"step-{step}"
    write_json(place / MANIFEST, {"format": 1, "step": step, "score": score}, durable=False)
    return place


def test_checkpoints_are_listed_by_number_not_by_letter(tmp_path: Path) -> None:
    for step in (10, 9, 100):
        save(tmp_path, step)
    assert [each.step for each in list_checkpoints(tmp_path)] == [9, 10, 100]


def test_a_checkpoint_without_a_readable_manifest_is_not_listed(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "step-2").mkdir()
    (save(tmp_path, 3) / MANIFEST).write_text('{"step": 3')
    (save(tmp_path, 4) / MANIFEST).write_text("[4]")
    assert [each.path.name for each in list_checkpoints(tmp_path)] == ["step-1"]
    assert list_checkpoints(tmp_path / "nothing") == []


def test_checkpoints_that_were_not_validated_are_never_the_best(tmp_path: Path) -> None:
    for step, score in ((1, None), (2, 0.0), (3, None)):
        save(tmp_path, step, score)
    best = best_of(list_checkpoints(tmp_path))
    assert best is not None
    assert best.step == 2
    assert best_of([Checkpoint(tmp_path, {"step": 5})]) is None
    assert best_of([]) is None


@given(st.lists(st.sampled_from([None, 0.0, 0.25, 0.5]), max_size=8))
def test_the_best_checkpoint_is_the_latest_of_the_highest_score(scores: list[float | None]) -> None:
    checkpoints = [
        Checkpoint(Path(f"step-{step}"), {"step": step, "score": score})
        for step, score in enumerate(scores)
    ]
    best = best_of(checkpoints)
    scored = [score for score in scores if score is not None]
    if best is None:
        assert not scored
        return
    assert best.score == max(scored)
    assert best.score not in scores[best.step + 1 :]


def test_difficulty_is_read_where_it_was_saved(tmp_path: Path) -> None:
    place = save(tmp_path, 1)
    (checkpoint,) = list_checkpoints(tmp_path)
    assert checkpoint.difficulty() is None
    write_json(place / DIFFICULTY, {"c1": 0.5}, durable=False)
    assert checkpoint.difficulty() == {"c1": 0.5}


def test_only_weights_that_were_trained_here_are_candidates(tmp_path: Path) -> None:
    step = save(tmp_path / "run-1" / "checkpoints", 4)
    assert candidate_of(str(step)) == "run-1/step-4"
    saved = tmp_path / "mine"
    saved.mkdir()
    assert candidate_of(str(saved)) == ""
    write_json(saved / "sparring.json", {"run": "run-1"}, durable=False)
    assert candidate_of(str(saved)) == str(saved.resolve())
    link = tmp_path / "link"
    link.symlink_to(step)
    assert candidate_of(str(link)) == "run-1/step-4"
    run = step.parent.parent
    write_json(run / "spec.json", {"kind": "train"}, durable=False)
    assert candidate_of(str(run)) == "run-1/step-4"
    assert candidate_of(str(run.parent / "1")) == "run-1/step-4"
    for other in (None, "", "Qwen/Qwen3-0.6B", str(tmp_path / "gone")):
        assert candidate_of(other) == ""


def test_a_folder_of_another_name_has_no_step() -> None:
    assert step_of(Path("checkpoints/step-12")) == 12
    for name in ("step-", "step-1.tmp", "best", "step--3"):
        assert step_of(Path(name)) == -1
