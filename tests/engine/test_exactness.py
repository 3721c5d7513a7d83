"""Our step is TRL's step on the same rollouts; rows that must not teach move nothing."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from sparring.contracts.errors import ParityError
from sparring.contracts.rollouts import Ending, Rollout, Span, TokenKind, TokenRow, TokenUse
from tests.training import trainer

GROUP, CASES, TEMPERATURE = 4, 2, 0.8


class Gradients(TrainerCallback):
    """Keeps the gradients of the first step."""

    def __init__(self) -> None:
        self.kept: dict[str, torch.Tensor] = {}

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.kept = {
            name: weights.grad.clone()
            for name, weights in model.named_parameters()
            if weights.grad is not None
        }


def by_sum(completion_ids, **_):
    """A reward in TRL's form that depends on the tokens alone."""
    return [float(sum(ids) % 3) / 2 for ids in completion_ids]


class BareTrl(GRPOTrainer):
    """TRL by itself, which samples, scores and learns; remembers what it did."""

    def _generate(self, prompts):
        made = super()._generate(prompts)
        self.seen = list(zip(prompts, made[0], made[1], strict=True))
        return made

    def _generate_and_score_completions(self, inputs):
        self.scored = super()._generate_and_score_completions(inputs)
        return self.scored


@pytest.fixture
def bare(tiny_folder: Path, tmp_path: Path) -> BareTrl:
    config = GRPOConfig(
        output_dir=str(tmp_path / "bare"),
        max_steps=1,
        per_device_train_batch_size=GROUP * CASES,
        num_generations=GROUP,
        max_completion_length=16,
        temperature=TEMPERATURE,
        learning_rate=1e-3,
        max_grad_norm=0.0,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to=[],
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
        seed=0,
    )
    made = BareTrl(
        model=AutoModelForCausalLM.from_pretrained(tiny_folder),
        reward_funcs=by_sum,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": [f"question {n}" for n in range(72)]}),
        processing_class=AutoTokenizer.from_pretrained(tiny_folder),
    )
    made.gradients = Gradients()
    made.add_callback(made.gradients)
    made.train()
    return made


def replaying(rows: Callable[[Any], tuple[list[int], list[int]]], policy_model: Any = None) -> Any:
    """A rollout function that hands out given tokens, with their true log-probabilities."""

    def function(play: Any, policy: Any) -> Rollout:
        prompt, completion = rows(play)
        ids = torch.tensor([[*prompt, *completion]])
        with torch.no_grad():
            logits = policy.model(input_ids=ids).logits[0, :-1] / TEMPERATURE
        chosen = torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None]).squeeze(1)
        row = TokenRow(
            agent="",
            ids=array("i", ids[0].tolist()),
            logprobs=array("f", chosen[len(prompt) - 1 :].tolist()),
            spans=(Span(TokenKind.PROMPT, len(prompt)), Span(TokenKind.SAMPLED, len(completion))),
        )
        use = TokenUse(len(prompt), len(completion))
        return Rollout(play.key, play.case, Ending.ANSWERED, "", rows=(row,), tokens=use)

    return function


def test_a_step_equals_one_of_bare_trl_on_the_same_rollouts(bare, tiny_folder, tmp_path):
    given: dict[str, list[Any]] = {}
    for prompt, prompt_ids, completion_ids in bare.seen:
        given.setdefault(prompt, []).append((prompt_ids, completion_ids))
    order = [f"question {n}" for n in range(96) if n % 4 != 3]  # the n-th training case
    ours = trainer(
        tiny_folder,
        tmp_path / "runs",
        measures=(),
        reward_functions=[by_sum],
        rollout_function=replaying(
            lambda play: given[f"question {order.index(play.case.input)}"][play.key.index]
        ),
        cases_per_batch=CASES,
        gradient_accumulation_steps=1,
        num_generations=GROUP,
        max_steps=1,
        max_completion_length=16,
        temperature=TEMPERATURE,
        max_grad_norm=0.0,
    )
    gradients = Gradients()
    ours.engine.add_callback(gradients)
    result = ours.train()

    rollouts = list(result.rollouts())
    assert [each.reward for each in rollouts] == by_sum([ids for _, _, ids in bare.seen])
    assert [each.advantage for each in rollouts] == bare.scored["advantages"].tolist()
    logged = next(row for row in bare.state.log_history if "loss" in row)
    assert result.final_loss == pytest.approx(logged["loss"], abs=1e-7)
    for name, theirs in bare.gradients.kept.items():
        largest = (gradients.kept[name] - theirs).abs().max()
        assert largest <= 1e-6 * theirs.abs().max().clamp(min=1e-3), name


# ------------------------------------------------------------------ rows that must not teach

REWARDS = [1.0, 0.0, None, 0.5, 1.0, 1.0, 0.0, 1.0]
TRUNCATED = {6}
LENGTHS = [3, 5, 4, 2, 6, 1, 7, 3]


def given_rewards(rollouts, **_):
    return [REWARDS[_number(each.key.case_id, each.key.index)] for each in rollouts]


NUMBERS: dict[str, int] = {}


def _number(case_id: str, index: int) -> int:
    return NUMBERS.setdefault(case_id, len(NUMBERS)) * GROUP + index


def scored_batch(tiny_folder: Path, runs: Path, **options: Any) -> tuple[Any, Any]:
    """The batch that TRL learns from, made of rows with the lengths and rewards above."""
    NUMBERS.clear()
    replay = replaying(
        lambda play: (
            [7, 8, 9],
            list(range(20, 20 + LENGTHS[_number(play.case.id, play.key.index)])),
        )
    )

    def function(play: Any, policy: Any) -> Rollout:
        from dataclasses import replace

        made: Rollout = replay(play, policy)
        cut = _number(play.case.id, play.key.index) in TRUNCATED
        return replace(made, ending=Ending.TOKEN_BUDGET) if cut else made

    ours = trainer(
        tiny_folder, runs, measures=(), reward_functions=[given_rewards],
        rollout_function=function, cases_per_batch=CASES, gradient_accumulation_steps=1,
        **options,
    )  # fmt: skip
    built = ours._training.built
    built.collector.resume_at(0)
    built.engine.restore(None)
    built.engine.update = lambda: iter(())
    built.steps.take()
    return ours.engine, built.engine._tensors


def test_advantages_are_taken_within_the_group_of_what_was_scored(tiny_folder, tmp_path):
    _, batch = scored_batch(tiny_folder, tmp_path)
    first = torch.tensor([1.0, 0.0, 0.5])
    spread = (first - first.mean()) / (first.std() + 1e-4)
    expected = [spread[0], spread[1], 0.0, spread[2], 0.0, 0.0, 0.0, 0.0]
    assert batch["advantages"][:, 0].tolist() == pytest.approx([float(each) for each in expected])


def test_a_truncated_rollout_takes_part_where_masking_is_off(tiny_folder, tmp_path):
    _, batch = scored_batch(tiny_folder, tmp_path, mask_truncated_completions=False)
    second = torch.tensor([1.0, 1.0, 0.0, 1.0])
    spread = (second - second.mean()) / (second.std() + 1e-4)
    assert batch["advantages"][GROUP:, 0].tolist() == pytest.approx(spread.tolist())


def test_tokens_that_must_not_teach_are_not_counted(tiny_folder, tmp_path):
    _, batch = scored_batch(tiny_folder, tmp_path)
    taught = [
        length for n, length in enumerate(LENGTHS) if REWARDS[n] is not None and n not in TRUNCATED
    ]
    assert int(batch["num_items_in_batch"]) == sum(taught)
    assert batch["completion_mask"].sum() == sum(LENGTHS), "they are still attended to"


def test_the_gradient_is_that_of_the_formula(tiny_folder, tmp_path):
    engine, batch = scored_batch(tiny_folder, tmp_path)
    engine.current_gradient_accumulation_steps = 1
    engine.model.eval()
    loss = engine._compute_loss(engine.model, batch)
    loss.backward()
    theirs = {
        name: w.grad.clone() for name, w in engine.model.named_parameters() if w.grad is not None
    }
    engine.model.zero_grad()

    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    width = batch["completion_ids"].size(1)
    logits = engine.model(input_ids=ids, attention_mask=attention).logits[:, :-1] / 0.8
    logprobs = torch.log_softmax(logits, -1).gather(2, ids[:, 1:, None]).squeeze(2)[:, -width:]
    mask = batch["completion_mask"] * batch["tool_mask"]
    ratio = torch.exp(logprobs - logprobs.detach())
    (-(ratio * batch["advantages"] * mask).sum() / mask.sum()).backward()
    for name, weights in engine.model.named_parameters():
        assert weights.grad is None or torch.allclose(weights.grad, theirs[name], atol=1e-6), name


def test_two_passes_of_four_rows_give_the_weights_of_one_pass_of_eight(tiny_folder, tmp_path):
    def trained(rows: int) -> dict[str, torch.Tensor]:
        made = trainer(
            tiny_folder, tmp_path, max_steps=1, cases_per_batch=2, gradient_accumulation_steps=1,
            per_device_train_batch_size=rows, engine={"optim": "sgd"}, learning_rate=1.0,
        )  # fmt: skip
        made.train()
        return {name: weights.detach() for name, weights in made.model.named_parameters()}

    whole, halves = trained(8), trained(4)
    for name, weights in whole.items():
        assert torch.allclose(weights, halves[name], atol=1e-6), name


# ------------------------------------------------------------------ the parity gate


def lying(change: Callable[[float], float]) -> Any:
    """A rollout function whose log-probabilities are not those of the model."""
    honest = replaying(lambda play: ([7, 8, 9], list(range(20, 36))))

    def function(play: Any, policy: Any) -> Rollout:
        from dataclasses import replace

        made: Rollout = honest(play, policy)
        row = made.rows[0]
        changed = array("f", [change(value) for value in row.logprobs])
        return replace(made, rows=(replace(row, logprobs=changed),))

    return function


def test_an_honest_sampler_passes_the_gate_by_far(tiny_folder, tmp_path):
    import json

    result = trainer(tiny_folder, tmp_path, max_steps=1, lora=True).train()
    events = [json.loads(line) for line in result.folder.events.read_text().splitlines()]
    parity = next(event for event in events if event["event"] == "parity")
    assert parity["largest"] < 1e-4
    assert parity["tokens"] > 20


def test_a_sampler_that_disagrees_is_refused_before_the_first_step(tiny_folder, tmp_path):
    made = trainer(tiny_folder, tmp_path, rollout_function=lying(lambda value: value - 0.01))
    before = [weights.detach().clone() for weights in made.model.parameters()]
    with pytest.raises(ParityError, match="not kept in sync"):
        made.train()
    assert all(
        torch.equal(one, other) for one, other in zip(before, made.model.parameters(), strict=True)
    )


def test_log_probabilities_of_another_temperature_are_named(tiny_folder, tmp_path):
    honest = replaying(lambda play: ([7, 8, 9], list(range(20, 36))))
    assert TEMPERATURE != 0.3
    made = trainer(tiny_folder, tmp_path, rollout_function=honest, temperature=0.3)
    with pytest.raises(ParityError, match="sampler and trainer differ"):
        made.train()


# ------------------------------------------------------------------ what cannot work


@pytest.mark.parametrize(("fsdp", "zero"), [(True, 0), (False, 3)])
def test_sampling_here_with_sharded_weights_is_refused(fsdp, zero):
    from types import SimpleNamespace

    from sparring.contracts.errors import SettingError
    from sparring.engine.trainer import PolicyTrainer

    plugin = SimpleNamespace(zero_stage=zero) if zero else None
    sharded: Any = SimpleNamespace(
        _samples_remotely=False,
        _settings=SimpleNamespace(warm_start=None),
        is_sharded=lambda: True,
        is_fsdp_enabled=fsdp,
        accelerator=SimpleNamespace(state=SimpleNamespace(deepspeed_plugin=plugin)),
    )
    with pytest.raises(SettingError, match="use sampling servers"):
        PolicyTrainer._refuse_what_sharding_breaks(sharded)
    sharded._samples_remotely = True
    PolicyTrainer._refuse_what_sharding_breaks(sharded)
    sharded._settings.warm_start = "a run"
    with pytest.raises(SettingError, match="warm_start does not work with sharded weights"):
        PolicyTrainer._refuse_what_sharding_breaks(sharded)
