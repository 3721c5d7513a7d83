"""Rollouts of several rows: the gradient is that of the formula, and each token counts once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest
import torch

from sparring.contracts.errors import SettingError, Untrainable
from sparring.contracts.rollouts import Ending, Rollout, Span, TokenKind, TokenRow, TokenUse
from sparring.run_folder import RunFolder
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import RolloutLog
from tests.training import trainer

TEMPERATURE, GROUP, CASES = 0.8, 4, 2
ROWS = (1, 2, 5, 3)  # of the rollouts of each group
WEIGHTS = ("model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight")


def _tokens(index: int, row: int) -> tuple[list[int], list[int], list[int]]:
    """The prompt, what is sampled before a result, and what is sampled after it."""
    return [7, 8, 9 + row % 2], list(range(20 + row, 23 + row + index)), [60 + index, 61]


def several_rows(play: Any, policy: Any) -> Rollout:
    """Given tokens in several rows, with their true log-probabilities."""
    index = play.key.index
    rows = []
    for number in range(ROWS[index]):
        prompt, first, second = _tokens(index, number)
        result = [40, 41]
        ids = torch.tensor([[*prompt, *first, *result, *second]])
        with torch.no_grad():
            logits = policy.model(input_ids=ids).logits[0, :-1] / TEMPERATURE
        chosen = torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None]).squeeze(1).tolist()
        start, middle = len(prompt) - 1, len(prompt) - 1 + len(first)
        spans = (
            Span(TokenKind.PROMPT, len(prompt)),
            Span(TokenKind.SAMPLED, len(first)),
            Span(TokenKind.OBSERVED, len(result)),
            Span(TokenKind.SAMPLED, len(second)),
        )
        logprobs = array("f", chosen[start:middle] + chosen[middle + len(result) :])
        rows.append(TokenRow(f"agent {number}", array("i", ids[0].tolist()), logprobs, spans))
    return Rollout(
        play.key, play.case, Ending.ANSWERED, "x" * index, rows=tuple(rows), tokens=TokenUse(1, 1)
    )


def trained(tiny_folder: Path, runs: Path, **options: Any) -> dict[str, torch.Tensor]:
    """The gradient of one step: how plain descent at rate 1 changes the weights."""
    made = trainer(
        tiny_folder, runs, rollout_function=several_rows, max_steps=1, num_generations=GROUP,
        gradient_accumulation_steps=1, learning_rate=1.0, max_grad_norm=1e9,
        temperature=TEMPERATURE,
        **{"cases_per_batch": CASES, "engine": {"optim": "sgd"}, **options},
    )  # fmt: skip
    before = {name: made.model.get_parameter(name).detach().clone() for name in WEIGHTS}
    made.train()
    return {name: before[name] - made.model.get_parameter(name).detach() for name in WEIGHTS}


def by_hand(tiny_folder: Path, groups: int, learned: tuple[int, ...] = ROWS) -> Any:
    """- sum of advantage x log-probability over all sampled tokens, by their number."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    rewards = torch.tensor([float(index % 2 == 0) for index in range(GROUP)])
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    total, tokens = torch.zeros(()), 0
    for index in range(GROUP):
        for number in range(learned[index]):
            prompt, first, second = _tokens(index, number)
            ids = torch.tensor([[*prompt, *first, 40, 41, *second]])
            logits = model(input_ids=ids).logits[0, :-1] / TEMPERATURE
            chosen = torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None]).squeeze(1)
            start, middle = len(prompt) - 1, len(prompt) - 1 + len(first)
            sampled = torch.cat([chosen[start:middle], chosen[middle + 2 :]])
            total = total - advantages[index] * sampled.sum()
            tokens += len(sampled)
    (total * groups / (tokens * groups)).backward()
    return {name: model.get_parameter(name).grad for name in WEIGHTS}


def assert_equal(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    for name in WEIGHTS:
        assert wanted[name].abs().max() > 1e-3, "there is a gradient"
        assert torch.allclose(found[name], wanted[name], atol=1e-6), name


@pytest.mark.parametrize("rows_per_pass", [GROUP * CASES, GROUP, 1])
@pytest.mark.parametrize("share_prompts", [True, False])
def test_the_gradient_of_a_mixed_batch_is_that_of_the_formula(
    tiny_folder: Path, tmp_path: Path, rows_per_pass: int, share_prompts: bool
) -> None:
    found = trained(
        tiny_folder, tmp_path, per_device_train_batch_size=rows_per_pass,
        share_prompts=share_prompts,
    )  # fmt: skip
    assert_equal(found, by_hand(tiny_folder, CASES))


def test_a_truncated_ratio_counts_tokens_the_same_way(tiny_folder: Path, tmp_path: Path) -> None:
    engine = {"optim": "sgd", "loss_type": "cispo", "epsilon_high": 5.0}
    assert_equal(trained(tiny_folder, tmp_path, engine=engine), by_hand(tiny_folder, CASES))


def test_only_the_agents_to_train_are_learned_from(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function's agents are not in the agent object, whose names are checked elsewhere."""
    monkeypatch.setattr("sparring.environments.task.refuse_untrainable", lambda *_: None)
    found = trained(tiny_folder, tmp_path, train_agents=["agent 0", "agent 1"])
    assert_equal(found, by_hand(tiny_folder, CASES, learned=(1, 2, 2, 2)))


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ({"loss_type": "grpo"}, "weighs tokens by the row"),
        ({"loss_type": "dr_grpo"}, "weighs tokens by the row"),
        ({"importance_sampling_level": "sequence"}, "weighs whole rows"),
        ({"entropy_coef": 0.01}, "entropy_coef is computed by row or by pass"),
    ],
)
def test_settings_that_weigh_whole_rows_are_refused_if_rollouts_have_several(
    tiny_folder: Path, tmp_path: Path, engine: dict[str, Any], reason: str
) -> None:
    with pytest.raises((Untrainable, SettingError), match=reason):
        trained(tiny_folder, tmp_path, engine={"optim": "sgd", **engine})


def test_two_ranks_with_different_numbers_of_rows_have_the_gradient_of_one(
    tiny_folder: Path, tmp_path: Path
) -> None:
    """Rank 1 has the shorter rollouts, so it is given rows and parts that teach nothing."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {
        **os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [
        sys.executable,
        "-m",
        "tests.engine.test_several_rows",
        str(tiny_folder),
        str(tmp_path),
    ]
    ranks = [
        subprocess.Popen(command, env={**common, "RANK": rank, "LOCAL_RANK": rank})
        for rank in ("0", "1")
    ]
    assert [rank.wait(300) for rank in ranks] == [0, 0]
    found = torch.load(tmp_path / "gradient.pt")
    assert_equal(found, by_hand(tiny_folder, CASES))


def test_the_gap_between_sampler_and_trainer_is_logged_with_each_token(
    tiny_folder: Path, tmp_path: Path
) -> None:
    trained(tiny_folder, tmp_path, run="gaps", engine={"optim": "sgd", "num_iterations": 2})
    log = RolloutLog(RunFolder(tmp_path / "gaps").rollouts())
    rows = [row for record in log.records() for row in from_record(record).rows]
    assert len(rows) == sum(ROWS) * CASES
    assert all(len(row.gaps) == row.sampled for row in rows)
    assert max(abs(gap) for row in rows for gap in row.gaps) < 1e-4


if __name__ == "__main__":
    gradient = trained(
        Path(sys.argv[1]), Path(sys.argv[2]), processes=2, cases_per_batch=1,
        per_device_train_batch_size=2, run="both",
    )  # fmt: skip
    if os.environ["RANK"] == "0":
        torch.save(gradient, Path(sys.argv[2]) / "gradient.pt")
