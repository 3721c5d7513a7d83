from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sparring.contracts.errors import CheckpointError, RunChanged
from sparring.learning.checkpoints import Checkpoints, Identity, verify
from sparring.run_folder.checkpoint_list import best_of, list_checkpoints

IDENTITY = Identity(suite="s" * 64, code="c" * 64, template="t" * 64, world_size=1)
FILES = ("model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json")


def checkpoints(folder: Path, identity: Identity = IDENTITY, **options: int) -> Checkpoints:
    return Checkpoints(folder, identity, **{"boundary": 1, "kept": 2, **options})


def save(made: Checkpoints, step: int, score: float | None = None, files=FILES) -> Path:
    written = made.staging(step) / f"checkpoint-{step}"
    written.mkdir(parents=True)
    for name in files:
        (written / name).write_text(f"{name} of step {step}")
    return made.seal(written, step, needed=FILES, score=score)


def test_a_sealed_checkpoint_verifies_and_nothing_is_left_beside_it(tmp_path):
    place = save(checkpoints(tmp_path), 4)
    assert place.name == "step-4"
    assert verify(place) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["step-4"]


def test_its_manifest_says_what_it_was_made_with(tmp_path):
    manifest = json.loads((save(checkpoints(tmp_path), 4) / "manifest.json").read_text())
    assert manifest["world_size"] == 1
    assert manifest["digests"] == {"suite": "s" * 64, "code": "c" * 64, "template": "t" * 64}
    assert set(manifest["files"]) == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_gone_cut_or_changed_is_noticed(tmp_path, name):
    place = save(checkpoints(tmp_path), 1)
    whole = (place / name).read_bytes()
    (place / name).write_bytes(whole[:-1])
    assert f"the size of {name} has changed" in verify(place)
    (place / name).write_bytes(whole[:-1] + b"!")
    assert f"the content of {name} has changed" in verify(place)
    (place / name).unlink()
    assert "missing" in verify(place)


def test_a_run_resumes_from_the_newest_checkpoint_that_verifies(tmp_path):
    made = checkpoints(tmp_path)
    for step in (1, 2, 3):
        save(made, step)
    (tmp_path / "step-3" / "optimizer.pt").write_bytes(b"torn")
    found = made.newest_verified()
    assert found is not None
    assert found.step == 2


def test_a_run_without_an_intact_checkpoint_is_not_resumed(tmp_path):
    made = checkpoints(tmp_path)
    (save(made, 1) / "optimizer.pt").unlink()
    with pytest.raises(
        CheckpointError, match=r"optimizer\.pt is missing.*start from the beginning"
    ):
        made.newest_verified()


def test_before_the_first_checkpoint_there_is_nothing_to_resume_from(tmp_path):
    made = checkpoints(tmp_path)
    (made.staging(1) / "checkpoint-1").mkdir(parents=True)
    assert made.newest_verified() is None


def test_a_checkpoint_without_its_optimizer_is_not_sealed(tmp_path):
    with pytest.raises(CheckpointError, match=r"lacks .*optimizer\.pt"):
        save(checkpoints(tmp_path), 1, files=("model.safetensors",))


def test_a_save_inside_of_a_generation_is_refused(tmp_path):
    made = checkpoints(tmp_path, boundary=2)
    assert save(made, 2).name == "step-2"
    with pytest.raises(CheckpointError, match="in the middle of a generation"):
        made.staging(3)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"suite": "x"}, "suite"),
        ({"code": "x"}, "code"),
        ({"template": "x"}, "template"),
        ({"world_size": 2}, r"world size \(1 → 2\)"),
    ],
)
def test_resuming_a_changed_run_is_refused_unless_changes_are_accepted(tmp_path, change, named):
    save(checkpoints(tmp_path), 1)
    changed = checkpoints(tmp_path, Identity(**{**_fields(IDENTITY), **change}))
    with pytest.raises(RunChanged, match=named):
        changed.newest_verified()
    assert changed.newest_verified(accept_changes=True) is not None


def test_the_newest_few_and_the_best_are_kept(tmp_path):
    made = checkpoints(tmp_path, kept=2)
    for step, score in ((1, 0.2), (2, 0.9), (3, 0.4), (4, 0.5), (5, 0.1)):
        save(made, step, score)
        made.prune()
    assert [each.step for each in made.all()] == [2, 4, 5]
    best = best_of(list_checkpoints(tmp_path))
    assert best is not None
    assert best.step == 2


def test_a_checkpoint_of_an_earlier_attempt_at_the_same_step_is_replaced(tmp_path):
    made = checkpoints(tmp_path)
    (save(made, 1) / "optimizer.pt").write_bytes(b"torn")
    assert verify(save(made, 1)) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def _fields(identity: Identity) -> dict[str, object]:
    return {name: getattr(identity, name) for name in identity.__slots__}


def test_the_score_of_a_start_is_noted_later_and_it_may_be_the_best(tmp_path):
    made = checkpoints(tmp_path)
    made.note_score(0, 0.8)  # no warm start made one
    save(made, 0)
    save(made, 2, 0.5)
    made.note_score(0, 0.8)
    assert verify(tmp_path / "step-0") == ""
    best = best_of(list_checkpoints(tmp_path))
    assert best is not None
    assert (best.step, best.score) == (0, 0.8)


def test_another_suite_or_number_of_ranks_draws_other_cases(tmp_path):
    save(checkpoints(tmp_path), 1)
    (saved,) = list_checkpoints(tmp_path)
    assert checkpoints(tmp_path).proposes_alike(saved)
    for change in ({"suite": "x"}, {"world_size": 2}):
        assert not checkpoints(tmp_path, replace(IDENTITY, **change)).proposes_alike(saved)
