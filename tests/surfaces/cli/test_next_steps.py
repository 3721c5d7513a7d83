"""After each kind of run, the commands that make sense next, with names that find it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.kinds import run_kind
from sparring.run_folder.files import write_json
from sparring.surfaces.cli.next_steps import (
    after_check,
    after_env_test,
    after_eval,
    after_init,
    after_look,
    after_proof,
    after_run,
    after_training,
)
from tests.summaries import completing
from tests.surfaces.cli.terminal import CHECK, PROOF, TRAIN, summary_of


def test_runs_are_named_by_the_end_of_their_id() -> None:
    assert after_look("bell-20261116-184053-77fe") == {
        "the report": "sparring run report 77fe",
        "each rollout": "sparring rollout list 77fe",
    }


def test_an_evaluation_of_an_environment_leads_to_its_check() -> None:
    run = {"run": "bell-20261116-184053-77fe"}
    assert (
        completing(after_eval)(run | {"environment": "bell"})["can it be learned?"]
        == "sparring check bell"
    )
    assert "can it be learned?" not in completing(after_eval)(run | {"environment": ""})
    assert "can it be learned?" not in completing(after_eval)(run)


def test_a_training_without_a_proof_says_how_to_prove_it() -> None:
    summary = summary_of(TRAIN)
    assert completing(after_training)(summary)["is it better?"] == "sparring prove e4fc"
    assert "is it better?" not in completing(after_training)(summary | {"has_proof": True})


def test_a_new_environment_is_tested_checked_and_trained_in_this_order() -> None:
    commands = [command.split()[1] for command in after_init("shop").values()]
    assert commands == ["env", "check", "train"]
    assert list(after_env_test("shop").values()) == ["sparring check shop"]


def test_training_is_offered_only_after_a_verdict_of_learnable() -> None:
    summary = summary_of(CHECK)
    assert summary["verdict"] == "broken"
    assert "train and prove" not in completing(after_check)(summary)
    steps = completing(after_check)(summary | {"verdict": "learnable"})
    assert steps["train and prove"] == "sparring train bell"
    assert steps["the report"] == "sparring run report e42b"


def test_a_training_from_python_has_no_environment_to_chat_with_or_to_clone() -> None:
    summary = summary_of(TRAIN)
    steps = completing(after_training)(summary)
    assert steps["talk to it"] == "sparring chat e4fc"
    assert steps["train again, longer"] == "sparring run clone e4fc --set max_steps=4"
    ours = completing(after_training)(summary | {"environment": ""})
    assert "talk to it" not in ours
    assert "train again, longer" not in ours
    assert "agent=…" in ours["use it in Python"]
    assert "agent=…" not in steps["use it in Python"]


def test_a_proof_that_is_not_good_suggests_to_train_longer() -> None:
    summary = summary_of(PROOF)
    steps = completing(after_proof)(summary)
    assert steps["before and after"] == "sparring run report proof-e4fc"
    assert steps["train again, longer"].startswith("sparring run clone e4fc ")
    assert "train again, longer" not in completing(after_proof)(summary | {"is_good": True})


def test_a_proof_leads_to_rollouts_that_do_not_spoil_the_next(tmp_path: Path) -> None:
    summary = summary_of(PROOF)
    command = "sparring rollout list {} --max-reward 0.5"
    step = Path(summary["checkpoint"]).name.removeprefix("step-")
    validation = f"e4fc --log validation --step {step}"
    assert completing(after_proof)(summary)["why it fails"] == command.format(validation)
    (tmp_path / "step-2").mkdir()
    write_json(tmp_path / "step-2" / "manifest.json", {"score": None}, durable=False)
    assert "why it fails" not in completing(after_proof)(
        summary | {"checkpoint": str(tmp_path / "step-2")}
    )
    on_validation = completing(after_proof)(summary | {"split": "validation"})
    assert on_validation["why it fails"] == command.format("proof-e4fc --player trained")


@pytest.mark.parametrize(("run", "kind"), [(CHECK, "check"), (TRAIN, "train"), (PROOF, "prove")])
def test_every_kind_has_its_next_steps_for_json(run: str, kind: str) -> None:
    shown = run_kind(kind, "the test").summary.model_validate(summary_of(run))
    after: dict[str, Any] = {"check": after_check, "train": after_training, "prove": after_proof}
    assert after_run(kind, summary_of(run)) == after[kind](shown) != {}
