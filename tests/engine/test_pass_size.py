"""Rows per pass are chosen once, and halved after each kill for memory; rollouts stay the same."""

from __future__ import annotations

import pytest

from sparring.contracts.errors import NotEnoughMemory
from sparring.engine import pass_memory
from sparring.run_folder.files import append_line, read_json
from sparring.suites import Suite
from tests.training import trainer

SETTINGS = {"cases_per_batch": 2, "num_generations": 4, "gradient_accumulation_steps": 1}
KIB = 1 / (1 << 20)


def rollouts(result):
    return [(each.id, each.answer, each.reward) for each in result.rollouts()]


@pytest.mark.nightly
def test_smaller_passes_play_the_same_rollouts(tiny_folder, tmp_path):
    whole = trainer(tiny_folder, tmp_path, run="whole", **SETTINGS).train()
    small = trainer(tiny_folder, tmp_path, run="small", pass_memory=KIB, **SETTINGS).train()
    assert read_json(whole.folder.passes)["rows"] == 8
    assert read_json(small.folder.passes)["rows"] == 1
    assert rollouts(small) == rollouts(whole)
    for mine, other in zip(small.history, whole.history, strict=True):
        assert mine["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4)


def test_the_choice_is_kept_and_each_kill_for_memory_halves_it(tiny_folder, tmp_path):
    first = trainer(tiny_folder, tmp_path, run="killed", max_steps=2, **SETTINGS).train()
    folder = first.folder
    for _ in range(2):
        append_line(folder.events, {"event": "restart", "cause": "out_of_memory"})
    for checkpoint in folder.checkpoints.glob("step-*"):
        checkpoint.rename(tmp_path / checkpoint.name)
    again = trainer(tiny_folder, tmp_path, run="killed", max_steps=2, **SETTINGS).train()
    assert read_json(folder.passes)["rows"] == 8
    assert "2 rows a pass instead of 8" in folder.events.read_text()
    assert rollouts(again) == rollouts(first)


def test_a_training_that_cannot_fit_says_so_before_its_first_step(
    tiny_folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(pass_memory, "free_memory", lambda: 10_000)
    made = trainer(tiny_folder, tmp_path, run="tight", **SETTINGS)
    with pytest.raises(NotEnoughMemory, match="max_completion_length"):
        made.train()
    assert not (tmp_path / "tight" / "metrics.jsonl").exists()


def test_the_prefix_that_prompts_share_is_that_of_a_file_sorted_by_documents(
    tiny_folder, tmp_path, monkeypatch
):
    def measure_pass(*_, prompt, common):
        raise NotEnoughMemory(f"{common < prompt / 2}")

    monkeypatch.setattr(pass_memory, "measure_pass", measure_pass)
    documents = ("whales swim far " * 40, "a tower has steps " * 40)
    rows = [{"input": f"{documents[n // 20]} question {n}", "split": "training"} for n in range(40)]
    with pytest.raises(NotEnoughMemory, match="True"):
        trainer(tiny_folder, tmp_path, suite=Suite.from_records(rows), **SETTINGS).train()
