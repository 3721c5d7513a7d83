"""A step of the trainer, piece by piece and without an update: play, score, pass, stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

from sparring import measure
from sparring.contracts.errors import GuardStop, InfrastructureError, SettingError, WorldSizeError
from sparring.contracts.verdicts import Verdict, scored
from tests.engine.built_run import CASES, GROUP, Run
from tests.training import trainer

# ------------------------------------------------------------------ a step


def test_playing_gives_rows_in_groups_and_leaves_model_and_random_state_alone(run: Run) -> None:
    before = torch.get_rng_state()
    rows = run.engine.play(run.proposed)
    assert torch.equal(torch.get_rng_state(), before)
    assert run.engine.model.training
    assert [len(ids) for ids in rows["completion_ids"]] == [3, 4, 5, 6] * CASES
    assert rows["prompt_ids"] == [[7, 8, 9]] * GROUP * CASES
    assert [len(each) for each in rows["logprobs"]] == [len(each) for each in rows["env_mask"]]
    assert run.doing == ["playing", "scoring"]


def test_a_batch_has_the_rewards_of_the_measures_and_parity_is_checked_once(run: Run) -> None:
    for _ in range(2):
        batch = run.engine._generate_and_score_completions(run.inputs)
        signs = batch["advantages"].sign().tolist()
        assert signs == [1, -1, 1, -1] * CASES, "answers of even length pass"
    assert len(run.parity) == 1
    assert run.parity[0].holds


def test_a_generation_is_played_once_for_all_of_its_passes(run: Run) -> None:
    run.engine._step = 0
    first = run.engine._prepare_inputs(run.inputs)
    run.engine._step = 1
    second = run.engine._prepare_inputs(run.inputs)
    assert run.doing.count("playing") == 1
    assert [len(each["completion_ids"]) for each in (first, second)] == [GROUP, GROUP]
    run.engine._step = 2
    run.engine._prepare_inputs(run.inputs)
    assert run.doing.count("playing") == 2


def test_scores_do_not_depend_on_shared_prompts_or_on_chunks(run: Run) -> None:
    batch = run.engine._generate_and_score_completions(run.inputs)
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    keep = batch["completion_ids"].size(1)
    assert run.engine.shares_prompts

    def scores(size: int | None) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = run.engine._get_per_token_logps_and_entropies(
                run.engine.model, ids, mask, keep, batch_size=size
            )[0]
        return found * batch["completion_mask"]

    shared, chunked = scores(None), scores(GROUP)
    run.engine.shares_prompts = False
    plain = scores(None)
    assert torch.allclose(shared, plain, atol=1e-5)
    assert torch.allclose(chunked, plain, atol=1e-5)
    sampled = batch["sampling_per_token_logps"] * batch["completion_mask"]
    assert torch.allclose(plain, sampled, atol=1e-4)


def test_a_loss_has_a_gradient_and_is_reported_as_an_update(run: Run) -> None:
    run.engine._step = 0
    run.engine._compute_loss(run.engine.model, run.engine._prepare_inputs(run.inputs)).backward()
    grads = [each.grad for each in run.engine.model.parameters() if each.grad is not None]
    assert any(grad.abs().sum() > 0 for grad in grads)
    assert run.doing[-1] == "updating"


def test_a_trl_that_does_not_play_or_score_through_us_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", lambda *_: {})
    with pytest.raises(InfrastructureError, match="scored a batch that was not played"):
        run.engine._generate_and_score_completions(run.inputs)
    monkeypatch.setattr(GRPOTrainer, "_compute_loss", lambda *_: torch.tensor(0.0))
    with pytest.raises(InfrastructureError, match="a loss without log-probabilities"):
        run.engine._compute_loss(run.engine.model, {})


def test_another_plan_distributes_the_same_rows_over_other_passes(
    run: Run, make: Callable[..., Run]
) -> None:
    whole = make(per_device_train_batch_size=GROUP * CASES).built.plan
    run.engine.use_plan(whole)
    run.engine._step = 0
    only = run.engine._prepare_inputs(run.inputs)
    assert len(only["completion_ids"]) == GROUP * CASES
    assert run.built.plan is whole
    assert run.engine.args.gradient_accumulation_steps == 1


def test_a_resumed_run_shuffles_its_cases_as_the_run_would_have(
    run: Run, make: Callable[..., Run]
) -> None:
    whole = run.engine._get_train_sampler()
    epochs = [list(whole) for _ in range(2)]
    resumed = make().engine
    resumed.epochs_before = 1
    assert epochs[0] != epochs[1]
    assert list(resumed._get_train_sampler()) == epochs[1]


# ------------------------------------------------------------------ reports and guards


def test_a_log_with_a_loss_is_a_step_and_no_other_is(run: Run) -> None:
    run.engine._generate_and_score_completions(run.inputs)
    run.engine.state.log_history.append({"a": 1})
    run.engine.report({"train_runtime": 3.0})
    assert run.steps == []
    assert run.engine.state.log_history == []
    run.engine.report({"loss": 0.25})
    ((_, row),) = run.steps
    assert (row["loss"], row["rollouts"], row["live_groups"]) == (0.25, GROUP * CASES, 1)


def set_gradients(run: Run, value: float) -> None:
    for each in run.engine.model.parameters():
        each.grad = torch.full_like(each, value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_stops_the_run(run: Run, value: float) -> None:
    set_gradients(run, value)
    with pytest.raises(GuardStop, match="step 1: the gradient is not finite"):
        run.engine.refuse_broken_gradients()


def test_a_guard_that_warns_drops_the_gradient_and_one_that_is_off_keeps_it(
    make: Callable[..., Run],
) -> None:
    warned, off = make(guards={"not_finite": "warn"}), make(guards={"not_finite": "off"})
    for each in (warned, off):
        set_gradients(each, float("nan"))
        each.engine.refuse_broken_gradients()
    assert all(each.grad is None for each in warned.engine.model.parameters())
    assert "the step is skipped" in warned.warnings[0]
    assert all(each.grad is not None for each in off.engine.model.parameters())
    assert off.warnings == []


def test_a_finite_gradient_is_left_alone(run: Run) -> None:
    set_gradients(run, 0.5)
    run.engine.refuse_broken_gradients()
    assert all((each.grad == 0.5).all() for each in run.engine.model.parameters())


def test_validation_plays_its_cases_once_and_leaves_the_random_state(run: Run) -> None:
    before = torch.get_rng_state()
    assert run.engine.validate() == 1.0, "the first rollout of a case has an empty answer"
    assert torch.equal(torch.get_rng_state(), before)
    ((step, figures),) = run.validations
    assert (step, figures["rollouts"]) == (0, 3)
    assert run.engine.model.training


def test_without_validation_cases_nothing_is_validated(make: Callable[..., Run]) -> None:
    run = make(validation_cases=0)
    assert run.engine.validate() is None
    assert run.doing == []


# ------------------------------------------------------------------ refusals


def test_a_trainer_without_a_collector_says_what_to_call(run: Run) -> None:
    run.engine._collector = None
    try:
        with pytest.raises(SettingError, match=r"call begin\(\) before train\(\)"):
            run.engine.play(run.proposed)
    finally:
        run.engine._collector = run.built.collector


def test_a_world_that_accelerate_does_not_run_is_refused(run: Run) -> None:
    with pytest.raises(WorldSizeError, match="3 processes were requested, but Accelerate runs 1"):
        run.engine.begin(run.built.collector, world_size=3)


def test_a_step_is_scored_in_training_mode_whatever_the_mode_was_before(run: Run) -> None:
    run.engine.model.eval()
    run.engine._step = 0
    run.engine.training_step(run.engine.model, run.inputs, None)
    assert "num_tokens" in run.engine._metrics["train"]
    assert not run.engine._metrics["eval"]


def test_equal_rewards_teach_nothing_though_their_mean_is_rounded(
    tiny_folder: Path, tmp_path: Path
) -> None:
    @measure
    def partly(_: Any) -> Verdict:
        return scored(0.7, "a part")

    made = trainer(
        tiny_folder, tmp_path, measures=(partly,), max_steps=1, num_generations=8,
        mask_truncated_completions=False, engine={"weight_decay": 0.0},
    )  # fmt: skip
    before = [weights.clone() for weights in made.model.parameters()]
    result = made.train()
    assert {each.advantage for each in result.rollouts()} == {0.0}
    assert all(map(torch.equal, before, made.model.parameters()))
