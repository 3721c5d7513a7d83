"""A chat is with an environment's own model, or with the best checkpoint of a training run."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.errors import (
    AmbiguousRun,
    EnvironmentNotFound,
    InvalidInput,
    NotPermitted,
)
from sparring.contracts.specs import EvalSpec
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.operations.chatting import ChatWith, prepare_chat
from sparring.operations.operation import Caller
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import MANIFEST
from sparring.run_folder.files import write_json
from tests.operations.made import make_project, operator_of


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


def make_training(caller: Caller, name: str = "shop-20260101-000000-ab12") -> RunFolder:
    folder = RunFolder(caller.runs / name)
    target = f"{caller.folder / 'shop.py'}:Shop"
    settings = TrainSettings(temperature=0.3)
    spec = TrainSpec(target=target, environment="shop", config={"size": 7}, settings=settings)
    folder.create(spec.model_dump(mode="json"))
    return folder


def save(folder: RunFolder, step: int, score: float | None) -> None:
    manifest = {"format": 1, "step": step, "score": score}
    write_json(folder.checkpoints / f"step-{step}" / MANIFEST, manifest)


def test_an_environment_is_chatted_with_untrained(owner: Caller) -> None:
    spec = prepare_chat(ChatWith(target="shop", settings={"temperature": 0.4}), owner)
    assert (spec.policy.model, spec.play.temperature) == ("tiny", 0.4)
    assert spec.about == "shop, not trained"


def test_the_name_of_an_environment_means_its_base_model_although_there_is_a_training(
    owner: Caller,
) -> None:
    folder = make_training(owner)
    save(folder, 3, 0.5)
    assert prepare_chat(ChatWith(target="shop"), owner).about == "shop, not trained"
    write_json(folder.summary, {"steps": 3})
    spec = prepare_chat(ChatWith(target="shop"), owner)
    assert spec.policy.model == "tiny"
    assert "for the trained model: `sparring chat " in spec.about


def test_a_training_is_chatted_with_at_its_best_checkpoint_and_as_it_was_played(
    owner: Caller,
) -> None:
    folder = make_training(owner)
    for step, score in ((1, 0.2), (2, 0.9), (3, 0.4)):
        save(folder, step, score)
    spec = prepare_chat(ChatWith(target=folder.id), owner)
    assert spec.policy.model == str(folder.checkpoints / "step-2")
    assert (spec.config, spec.play.temperature) == ({"size": 7}, 0.3)
    assert spec.about.startswith("shop, trained: step-2 of run ")


def test_without_validation_the_last_checkpoint_answers(owner: Caller) -> None:
    folder = make_training(owner)
    with pytest.raises(InvalidInput, match="has no checkpoint; wait"):
        prepare_chat(ChatWith(target=folder.id), owner)
    for step in (9, 10):
        save(folder, step, None)
    assert prepare_chat(ChatWith(target=folder.id), owner).policy.model == str(
        folder.checkpoints / "step-10"
    )


def test_a_run_that_cannot_be_chatted_with_is_refused_with_the_remedy(owner: Caller) -> None:
    python = TrainSpec(target="(python) agent").model_dump(mode="json")
    RunFolder(owner.runs / "mine").create(python)
    with pytest.raises(InvalidInput, match=r"TrainResult\.load\(\"mine\", agent=…\)"):
        prepare_chat(ChatWith(target="mine"), owner)
    evaluation = EvalSpec(target="shop.py:Shop").model_dump(mode="json")
    RunFolder(owner.runs / "played").create(evaluation)
    with pytest.raises(InvalidInput, match="is not a training run; name its environment"):
        prepare_chat(ChatWith(target="played"), owner)
    with pytest.raises(EnvironmentNotFound):
        prepare_chat(ChatWith(target="nothing"), owner)


def test_a_training_keeps_its_settings_in_a_chat(owner: Caller) -> None:
    save(make_training(owner), 3, 0.5)
    with pytest.raises(InvalidInput, match=r"temperature: run shop-.* keeps the settings"):
        prepare_chat(ChatWith(target="ab12", settings={"temperature": 0.1}), owner)


def test_a_part_of_several_ids_is_refused_with_those_ids(owner: Caller) -> None:
    for name in ("shop-20260101-000000-ab12", "shop-20260101-000001-cd34"):
        make_training(owner, name)
    with pytest.raises(AmbiguousRun, match=r"matches 2 runs .* give more of the id"):
        prepare_chat(ChatWith(target="shop-20260101"), owner)


def test_an_environment_without_runs_is_meant_although_others_begin_alike(owner: Caller) -> None:
    for name in ("shop-hard-20260101-000000-ab12", "shop-hard-20260101-000001-cd34"):
        folder = make_training(owner, name)
        write_json(folder.spec, {**folder.read_spec(), "environment": "shop_hard"})
    assert prepare_chat(ChatWith(target="shop"), owner).about == "shop, not trained"


def test_chatting_is_for_the_owner(owner: Caller) -> None:
    with pytest.raises(NotPermitted, match="needs the role owner"):
        prepare_chat(ChatWith(target="shop"), operator_of(owner))
