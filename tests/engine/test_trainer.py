"""The engine on TRL, verb by verb: propose, sample, score, update, report, save, restore."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import TrainerCallback
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler

from sparring import measure
from sparring.contracts.errors import CheckpointError, GuardStop, InfrastructureError
from sparring.contracts.verdicts import Verdict, scored
from sparring.engine.tensors import attended
from sparring.engine.trainer import CaseOrder, PolicyTrainer
from sparring.learning.checkpoints import verify
from sparring.learning.engine import Engine, LearningState
from tests.engine.built_run import CASES, GROUP, Run
from tests.training import trainer


def test_the_trainer_derives_from_trls_trainer_directly() -> None:
    assert PolicyTrainer.__bases__ == (GRPOTrainer,)


def test_a_step_sees_only_the_seam(run: Run) -> None:
    engine: Engine = run.engine
    assert (engine.step, engine.rank, engine.gather([1])) == (0, 0, [1])


# ------------------------------------------------------------------ propose and sample


def test_a_resumed_run_proposes_the_cases_that_the_run_would_have(
    run: Run, make: Callable[..., Run]
) -> None:
    steps = run.built.plan.steps_per_epoch
    whole = [run.engine.propose(step) for step in range(2 * steps)]
    resumed = make().engine
    resumed.state.global_step = steps + 3
    assert [resumed.propose(step) for step in range(steps + 3, 2 * steps)] == whole[steps + 3 :]
    assert sorted(map(str, whole[:steps])) != sorted(map(str, whole[steps:])), "shuffled anew"


def test_sampling_leaves_the_mode_and_the_random_numbers_of_the_training_alone(run: Run) -> None:
    before = torch.get_rng_state()
    with run.engine.sampling():
        assert not run.engine.model.training
        torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    assert run.engine.model.training


def test_weights_are_published_once_per_step(run: Run) -> None:
    synced: list[tuple[int, list[str]]] = []

    class Noted:
        def sync(self, in_play: Any) -> None:
            synced.append((run.engine.step, in_play))

    run.engine.publisher = Noted()  # type: ignore[assignment]
    for step in (0, 0, 1, 1):
        run.engine.state.global_step = step
        run.engine.publish(["in play"])  # type: ignore[list-item]
        assert run.engine.policy.version == step
    assert synced == [(0, ["in play"]), (1, ["in play"])]


# ------------------------------------------------------------------ score


def test_a_batch_becomes_the_tensors_of_its_streams(run: Run) -> None:
    tensors = run.scored()
    lengths = tensors["completion_mask"].sum(dim=1).tolist()
    assert lengths == [3, 4, 5, 6] * CASES
    assert tensors["prompt_ids"].tolist() == [[7, 8, 9]] * GROUP * CASES
    assert tensors["num_items_in_batch"] == sum(lengths)
    signs = tensors["advantages"][:, 0].sign().tolist()
    assert signs == [1, -1, 1, -1] * CASES, "answers of even length pass"


def test_parity_is_compared_only_on_request(run: Run) -> None:
    batch = run.batch()
    assert run.engine.score(batch, compares=False).parity is None
    parity = run.engine.score(batch, compares=True).parity
    assert parity is not None
    assert parity.holds


def test_scores_do_not_depend_on_shared_prompts_or_on_chunks(run: Run) -> None:
    tensors = run.scored()
    ids, mask, keep = attended(tensors)
    assert run.engine.forward.shares_prompts

    def scores(size: int | None) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = run.engine._get_per_token_logps_and_entropies(
                run.engine.model, ids, mask, keep, batch_size=size
            )[0]
        return found * tensors["completion_mask"]

    shared, chunked = scores(None), scores(GROUP)
    run.engine.forward.shares_prompts = False
    plain = scores(None)
    assert torch.allclose(shared, plain, atol=1e-5)
    assert torch.allclose(chunked, plain, atol=1e-5)
    sampled = tensors["sampling_per_token_logps"] * tensors["completion_mask"]
    assert torch.allclose(plain, sampled, atol=1e-4)


# ------------------------------------------------------------------ update


def trainable(run: Run) -> dict[str, torch.Tensor]:
    return {
        name: weights.detach().clone()
        for name, weights in run.engine.model.named_parameters()
        if weights.requires_grad
    }


def learn(run: Run, steps: int = 1) -> None:
    for _ in range(steps):
        batch = run.batch()
        run.engine.score(batch, compares=False)
        list(run.engine.update())


def test_an_update_changes_the_weights_and_counts_its_step(run: Run) -> None:
    run.engine.restore(None)
    before = trainable(run)
    learn(run)
    assert run.engine.step == 1
    assert any(not torch.equal(before[name], now) for name, now in trainable(run).items())
    assert run.doing[-1] == "updating"


def test_a_generation_is_learned_from_as_often_as_trl_is_set_to(make: Callable[..., Run]) -> None:
    run = make(engine={"num_iterations": 2})
    run.engine.restore(None)
    batch = run.batch()
    run.engine.score(batch, compares=False)
    assert list(run.engine.update()) == [1, 2]


def test_another_plan_distributes_the_same_rows_over_other_passes(
    run: Run, make: Callable[..., Run]
) -> None:
    whole = make(per_device_train_batch_size=GROUP * CASES).built.plan
    assert run.built.plan.passes_per_step == 2
    run.engine.use_plan(whole)
    run.scored()
    ((only,),) = run.engine._passes()
    assert len(only["completion_ids"]) == GROUP * CASES
    assert run.built.plan is whole
    assert run.engine.args.gradient_accumulation_steps == 1


def test_figures_are_the_means_since_the_last_ones_and_only_those_we_report(run: Run) -> None:
    run.engine.restore(None)
    learn(run, 2)
    means = run.engine.figures().means
    assert {"loss", "grad_norm", "learning_rate", "entropy", "num_tokens", "epoch"} <= set(means)
    assert not set(means) & {"reward", "completions/mean_length", "step"}
    assert means["epoch"] == pytest.approx(2 / run.built.plan.steps_per_epoch)
    assert run.engine.state.log_history == [], "it would grow with every step"


def test_callbacks_on_the_trainer_of_trl_are_called_around_a_step(run: Run) -> None:
    called: list[str] = []

    class Noting(TrainerCallback):
        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            called.append("before")

        def on_step_end(self, *_: Any, **__: Any) -> None:
            called.append("after")

    run.engine.add_callback(Noting())
    run.engine.restore(None)
    learn(run)
    assert called == ["before", "after"]


def test_a_trl_that_does_not_score_through_us_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GRPOTrainer, "_compute_loss", lambda *_: torch.tensor(0.0))
    with pytest.raises(InfrastructureError, match="a loss without log-probabilities"):
        run.engine._compute_loss(run.engine.model, {})


def set_gradients(run: Run, value: float) -> None:
    for each in run.engine.model.parameters():
        each.grad = torch.full_like(each, value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_stops_the_run(run: Run, value: float) -> None:
    set_gradients(run, value)
    with pytest.raises(GuardStop, match="step 1: the gradient is not finite"):
        run.engine._refuse_broken_gradients()


def test_a_guard_that_warns_drops_the_gradient_and_one_that_is_off_keeps_it(
    make: Callable[..., Run],
) -> None:
    warned, off = make(guards={"not_finite": "warn"}), make(guards={"not_finite": "off"})
    for each in (warned, off):
        set_gradients(each, float("nan"))
        each.engine._refuse_broken_gradients()
    assert all(each.grad is None for each in warned.engine.model.parameters())
    assert "the step is skipped" in warned.warnings[0]
    assert all(each.grad is not None for each in off.engine.model.parameters())
    assert off.warnings == []


def test_a_finite_gradient_is_left_alone(run: Run) -> None:
    set_gradients(run, 0.5)
    run.engine._refuse_broken_gradients()
    assert all((each.grad == 0.5).all() for each in run.engine.model.parameters())


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


# ------------------------------------------------------------------ save and restore

STATE = LearningState(difficulty={"format": 1, "cases": {}}, in_play=[], weights=[], score=0.5)


def test_a_checkpoint_is_sealed_with_its_score(run: Run) -> None:
    run.engine.restore(None)
    learn(run)
    place = run.engine.save(STATE)
    (checkpoint,) = run.engine.checkpoints.all()
    assert place == checkpoint.path
    assert verify(checkpoint.path) == ""
    assert checkpoint.manifest["score"] == 0.5
    assert {"torch", "trl"} <= checkpoint.manifest["versions"].keys()


def test_a_save_inside_of_a_generation_is_refused(make: Callable[..., Run]) -> None:
    run = make(engine={"num_iterations": 2})
    run.engine.restore(None)
    run.engine.state.global_step = 1
    with pytest.raises(CheckpointError, match="in the middle of a generation"):
        run.engine.save(STATE)
    assert not run.engine.checkpoints.all()


@pytest.mark.parametrize("lora", [False, True])
def test_a_restored_engine_learns_the_same_as_the_one_that_saved(
    make: Callable[..., Run], lora: bool
) -> None:
    run = make(lora=lora, max_steps=3)
    run.engine.restore(None)
    learn(run)
    run.engine.save(STATE)
    learn(run)
    (checkpoint,) = run.engine.checkpoints.all()
    resumed = make(lora=lora, max_steps=3)
    with torch.no_grad():
        for weights in resumed.engine.model.parameters():
            if weights.requires_grad:
                weights.add_(1.0)
    assert resumed.engine.restore(checkpoint) == []
    learn(resumed)
    assert resumed.engine.step == run.engine.step == 2
    ours, theirs = trainable(run), trainable(resumed)
    assert ours
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_files_go_to_staging_only_while_a_checkpoint_is_saved(run: Run) -> None:
    usual = run.engine._get_output_dir(None)
    run.engine._staging = run.engine.checkpoints.staging(1)
    assert run.engine._get_output_dir(None) == str(run.engine._staging) != usual


def test_a_run_reports_to_no_one(make: Callable[..., Run], monkeypatch: Any) -> None:
    """TRL would tell its makers of each training, and write a card with the hub's help."""
    sent: list[Any] = []
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("trl.trainer.base_trainer.send_telemetry", lambda **what: sent.append(what))
    assert make().engine.create_model_card() is None
    assert sent == []


def sampler_of(
    cases: int, per_step: int, group: int, passes: int, *, shuffle: bool
) -> RepeatSampler:
    return RepeatSampler(
        data_source=range(cases),
        mini_repeat_count=group,
        batch_size=per_step,
        repeat_count=passes,
        shuffle=shuffle,
        seed=7,
    )


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(0, 5), st.booleans())
def test_each_rank_gets_the_cases_of_its_rows(
    world_size: int, share: int, passes: int, spare: int, shuffle: bool
) -> None:
    group, per_step, steps = 2, world_size * share, 7
    given_ = (3 * per_step + spare, per_step, group, passes)
    order = CaseOrder(
        sampler_of(*given_, shuffle=shuffle),
        lambda numbers: [str(number) for number in numbers],
        world_size=world_size,
        first_step=0,
        boundary=1,
    )
    sampler, rows = sampler_of(*given_, shuffle=shuffle), []
    while len(rows) < steps * passes * per_step * group:
        rows += list(sampler)
    for step in range(steps):
        start = step * passes * per_step * group
        mine = [str(row) for row in rows[start : start + per_step * group : group]]
        expected = [mine[rank * share : (rank + 1) * share] for rank in range(world_size)]
        assert order(step) == expected


def test_a_step_is_looked_up_once_and_in_order() -> None:
    order = CaseOrder(
        sampler_of(8, 2, 2, 1, shuffle=False),
        lambda numbers: [str(number) for number in numbers],
        world_size=1,
        first_step=10,
        boundary=2,
    )
    assert order(12) == [["2", "3"]]
    with pytest.raises(InfrastructureError, match="requested after those of step"):
        order(12)
