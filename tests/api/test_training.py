from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from agents import Agent, function_tool
from transformers import AutoModelForCausalLM, AutoTokenizer

from sparring import Suite, evaluate, failed, measure, passed, tool, train
from sparring.contracts.errors import (
    GuardStop,
    InvalidInput,
    MeasureError,
    RunChanged,
    SettingError,
    SplitTooSmall,
    Untrainable,
)
from sparring.contracts.rollouts import Ending
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.run_folder.files import read_lines
from tests.jobs.agent_file import EveryOther
from tests.training import TALKATIVE, even, questions, talker, trainer, weights_digest


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# ------------------------------------------------------------------ a run


def test_training_moves_the_weights_and_leaves_a_run_behind(tiny_folder, tmp_path):
    made = trainer(tiny_folder, tmp_path, validation_cases=8, save_steps=2)
    before = [weights.detach().clone() for weights in made.model.parameters()]
    result = made.train()
    assert any(
        not torch.equal(one, other)
        for one, other in zip(before, made.model.parameters(), strict=True)
    )
    assert [row["step"] for row in result.history] == [0, 1, 2, 3]
    assert [each.step for each in list_checkpoints(result.folder.checkpoints)] == [2, 3]
    assert result.best is not None
    events = [event["event"] for event in lines(result.folder.events)]
    assert events == ["started", "inputs", "parity", "checkpoint", "checkpoint", "completed"]


def test_every_training_rollout_is_on_disk_with_reward_and_advantage(tiny_folder, tmp_path):
    result = trainer(tiny_folder, tmp_path).train()
    rollouts = list(result.rollouts())
    assert len(rollouts) == 3 * 4 * 4
    for each in rollouts:
        assert each.judgements[0].verdict.reason
        teaches = each.reward is not None and not each.is_truncated
        assert (each.advantage is not None) == teaches


def test_a_step_tells_loss_reward_pass_rates_and_live_groups(tiny_folder, tmp_path):
    row = trainer(tiny_folder, tmp_path).train().history[0]
    for name in ("loss", "grad_norm", "learning_rate", "reward", "reward_min", "reward_max",
                 "advantage", "advantage_min", "advantage_max", "pass_rate/even", "live_groups",
                 "tokens_per_second", "truncated", "parse_rate"):  # fmt: skip
        assert name in row, name
    assert "call_rate" not in row  # the agent has no tools


def test_equal_seeds_give_equal_weights_and_other_seeds_other_weights(tiny_folder, tmp_path):
    digests = [
        weights_digest(trainer(tiny_folder, tmp_path, seed=seed).train()) for seed in (0, 0, 1)
    ]
    assert digests[0] == digests[1] != digests[2]


def test_train_works_inside_of_a_running_event_loop(tiny_folder, tmp_path):
    async def notebook() -> int:
        result = train(
            talker(), questions(), [even], model=str(tiny_folder), family=TALKATIVE,
            max_steps=1, max_completion_length=8, validation_cases=0, runs=tmp_path,
            show_progress=False,
        )  # fmt: skip
        return int(result.summary.steps)

    assert asyncio.run(notebook()) == 1


def test_memory_does_not_keep_the_history(tiny_folder, tmp_path):
    made = trainer(tiny_folder, tmp_path)
    made.train()
    assert len(made.engine.state.log_history) <= 1


# ------------------------------------------------------------------ resuming


def call_after_steps(made: Any, function: Any) -> None:
    reports = made._training.built.steps._reports
    reports._hooks = replace(reports._hooks, on_step=function)


def stopped_after(made: Any, step: int) -> Any:
    """Ask for a stop once this step is done."""
    note_step = made._training._note_step

    def note(at: int, row: dict[str, Any]) -> None:
        note_step(at, row)
        if at == step:
            made.stop()

    call_after_steps(made, note)
    with pytest.warns(RuntimeWarning, match="the training was stopped after"):
        return made.train()


def test_a_trainer_trains_once(tiny_folder, tmp_path):
    made = trainer(tiny_folder, tmp_path, run="r", max_steps=1)
    made.train()
    with pytest.raises(InvalidInput, match="make another one with run='r'"):
        made.train()


def test_an_evaluation_of_the_trained_policy_counts_as_one_of_the_run(tiny_folder, tmp_path):
    records = [
        {"input": f"question {n}", "split": "held-out" if n % 4 == 3 else "training"}
        for n in range(32)
    ]
    suite = Suite.from_records(records, minimum_cases=1)
    options = {"run": "r", "max_steps": 1, "suite": suite}
    result = trainer(tiny_folder, tmp_path, **options).train()
    evaluate(
        talker(),
        suite,
        [even],
        policy=result.policy,
        split="held-out",
        runs=tmp_path,
        show_progress=False,
        max_completion_length=24,
    )
    (look,) = read_lines(result.folder.proofs)
    assert look["candidate"] == "r/step-1#0"


def test_other_settings_under_the_same_name_are_refused(tiny_folder, tmp_path):
    trainer(tiny_folder, tmp_path, run="r", max_steps=1).train()
    with pytest.raises(RunChanged, match="max_steps"):
        trainer(tiny_folder, tmp_path, run="r", max_steps=2)


def test_another_suite_is_refused_unless_changes_are_accepted(tiny_folder, tmp_path):
    trainer(tiny_folder, tmp_path, run="r", max_steps=1).train()
    other = {"run": "r", "max_steps": 1, "suite": questions(72)}
    with pytest.raises(RunChanged, match="a different suite"):
        trainer(tiny_folder, tmp_path, **other).train()
    assert trainer(tiny_folder, tmp_path, accept_changes=True, **other).train()


# ------------------------------------------------------------------ what can be brought along


def test_reward_functions_in_trls_form_stand_beside_measures(tiny_folder, tmp_path):
    seen: dict[str, Any] = {}

    def shortness(prompts, completions, completion_ids, topic, log_extra, **_):
        seen.update(prompt=prompts[0], completion=completions[0], topic=topic[0])
        log_extra("length", [len(ids) for ids in completion_ids])
        return [-float(len(ids)) for ids in completion_ids]

    records = [{"input": f"q {n}", "topic": "talk", "split": "training"} for n in range(40)]
    result = trainer(
        tiny_folder, tmp_path, suite=Suite.from_records(records), reward_functions=[shortness],
        weights={"shortness": 0.5}, max_steps=1,
    ).train()  # fmt: skip
    assert seen["prompt"][-1] == {"role": "user", "content": seen["prompt"][-1]["content"]}
    assert seen["completion"][0]["role"] == "assistant"
    assert seen["topic"] == "talk"
    each = next(result.rollouts())
    scores = {judged.measure: judged.verdict.score for judged in each.judgements}
    assert each.reward == pytest.approx((scores["even"] + 0.5 * scores["shortness"]) / 1.5)
    assert "length: " in each.judgements[1].verdict.reason


def test_a_reward_function_that_breaks_leaves_rollouts_unscored(tiny_folder, tmp_path):
    calls = 0

    async def broken(completions, **_):
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError("judge is down")
        return [1.0 + n for n, _ in enumerate(completions)]

    result = trainer(
        tiny_folder, tmp_path, measures=(), reward_functions=[broken], max_steps=2
    ).train()
    rollouts = list(result.rollouts())
    assert [each.reward is None for each in rollouts] == [False] * 16 + [True] * 16
    assert result.history[1]["unscored"] == 1.0
    assert result.history[1]["grad_norm"] == 0.0


def test_a_gradient_that_is_not_finite_never_reaches_the_weights(tiny_folder, tmp_path):
    made = trainer(tiny_folder, tmp_path)
    head = made.model.get_output_embeddings().weight
    head.register_hook(lambda grad: grad * float("nan"))
    with pytest.raises(GuardStop, match="step 1: the gradient is not finite"):
        made.train()
    assert torch.isfinite(head).all()


def test_no_reward_at_all_is_refused(tiny_folder, tmp_path):
    with pytest.raises(MeasureError, match="nothing would be judged"):
        trainer(tiny_folder, tmp_path, measures=())


class Counter:
    """A world of one rollout: it counts."""

    def __init__(self) -> None:
        self.total = 0

    @tool
    def wait(self, text: str = "") -> str:
        """Count one up.

        Args:
            text: whatever
        """
        self.total += 1
        return f"{self.total}"

    def hidden(self) -> None:
        """Not declared, so no tool."""


def test_tools_of_a_world_join_the_agents_and_measures_see_its_end(tiny_folder, tmp_path):
    @measure
    def counted(rollout):
        called = sum(call.failure is None for call in rollout.tool_calls)
        if rollout.world.total == called:
            return passed(f"{called} calls")
        return failed(f"the world says {rollout.world.total}, there were {called} calls")

    result = trainer(
        tiny_folder, tmp_path, context=Counter, measures=(counted,), max_steps=1,
        family=replace(TALKATIVE, tool_calls=EveryOther()), max_completion_length=200,
    ).train()  # fmt: skip
    rollouts = list(result.rollouts())
    answered = [each for each in rollouts if each.ending is Ending.ANSWERED]
    assert any(each.tool_calls for each in answered)
    assert all(each.judgements[0].is_correct for each in answered)


def test_a_loaded_model_tokenizer_optimizer_and_scheduler_are_used(tiny_folder, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(tiny_folder)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    made = trainer(
        tiny_folder, tmp_path, model=model, tokenizer=AutoTokenizer.from_pretrained(tiny_folder),
        optimizer=optimizer, scheduler=scheduler, max_steps=1,
    )  # fmt: skip
    assert made.model is model
    assert made.train().history[0]["learning_rate"] == 0.25
    assert made.engine.optimizer.optimizer is optimizer


def test_a_model_with_an_adapter_trains_that_adapter(tiny_folder, tmp_path):
    from peft import LoraConfig, get_peft_model

    base = AutoModelForCausalLM.from_pretrained(tiny_folder)
    adapted = get_peft_model(base, LoraConfig(r=2, target_modules="all-linear"))
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    result = trainer(tiny_folder, tmp_path, model=adapted, tokenizer=tokenizer, max_steps=1).train()
    files = list_checkpoints(result.folder.checkpoints)[-1].manifest["files"]
    assert "adapter_model.safetensors" in files
    with pytest.raises(SettingError, match="already has an adapter"):
        trainer(tiny_folder, tmp_path, model=adapted, tokenizer=tokenizer, lora=True)


def test_bfloat16_trains_and_samples_alike(tiny_folder, tmp_path):
    result = trainer(tiny_folder, tmp_path, dtype="bfloat16", max_steps=1).train()
    parity = next(event for event in lines(result.folder.events) if event["event"] == "parity")
    assert parity["dtype"] == "bfloat16"
    assert next(result.model.parameters()).dtype is torch.float32


def test_several_updates_on_the_same_rollouts_save_between_generations(tiny_folder, tmp_path):
    given = {"max_steps": 4, "save_steps": 1, "engine": {"num_iterations": 2}}
    whole = trainer(tiny_folder, tmp_path, run="w", **given).train()
    assert [each.step for each in list_checkpoints(whole.folder.checkpoints)] == [2, 4]
    part = stopped_after(trainer(tiny_folder, tmp_path, run="p", **given), 1)
    assert part.summary.steps == 2, "it stops at the end of the generation"
    rest = trainer(tiny_folder, tmp_path, run="p", **given).train()
    assert weights_digest(rest) == weights_digest(whole)


# ------------------------------------------------------------------ refusals


def test_an_agent_to_train_that_does_not_exist_is_refused_with_those_that_do(tiny_folder, tmp_path):
    agent = Agent(name="front", handoffs=[Agent(name="back")])
    with pytest.raises(Untrainable, match="no agent 'side'; there are 'back', 'front'"):
        trainer(tiny_folder, tmp_path, agent=agent, train_agents="side")


def test_too_few_training_cases_are_refused(tiny_folder, tmp_path):
    suite = Suite.from_records([{"input": f"q {n}", "split": "validation"} for n in range(30)])
    with pytest.raises(SplitTooSmall, match="training"):
        trainer(tiny_folder, tmp_path, suite=suite)


def test_a_wrong_number_of_processes_fails_at_the_start(tiny_folder, tmp_path):
    with pytest.raises(Exception, match="2 processes were requested, but 1 started"):
        trainer(tiny_folder, tmp_path, processes=2)


def test_an_unknown_setting_is_refused_before_anything_is_made(tiny_folder, tmp_path):
    with pytest.raises(SettingError, match="use save_steps"):
        trainer(tiny_folder, tmp_path / "runs", checkpoint_steps=5)
    assert not (tmp_path / "runs").exists()


def test_no_model_is_an_error_that_says_where_to_name_one(tiny_folder, tmp_path):
    with pytest.raises(InvalidInput, match="no model to train"):
        trainer(tiny_folder, tmp_path, model=None)


@function_tool
def wait(text: str = "") -> str:
    """Wait."""
    return text
