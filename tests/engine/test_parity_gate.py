"""The parity gate: what it compares, what it leaves out, and how it refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sparring.engine.parity_gate import ParityGate
from sparring.engine.tensors import Tensors

VOCABULARY, PROMPT, COMPLETION, TEMPERATURE = 11, 3, 10, 0.5


class Model(torch.nn.Module):
    """Predicts the next token from the current one alone, with a dropout that must be off."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(VOCABULARY, VOCABULARY, dtype=dtype)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return SimpleNamespace(logits=self.dropout(self.table(input_ids)))


class Engine:
    """The parts of a GRPO trainer that the gate uses; `gather` adds the rows of other ranks."""

    def __init__(self, model: Model | None = None, others: list[list[float]] | None = None) -> None:
        self.model = model or Model()
        self.model.train()
        self.args = SimpleNamespace(per_device_train_batch_size=4, bf16=False)
        self.accelerator = SimpleNamespace(
            gather=lambda own: torch.cat([own, *(torch.tensor(each) for each in others or [])])
        )
        self.scored_rows: list[int] = []

    def _get_per_token_logps_and_entropies(
        self, model: Any, ids: torch.Tensor, mask: torch.Tensor, keep: int, batch_size: int
    ) -> Any:
        assert batch_size == 4
        self.scored_rows.append(len(ids))
        return log_probabilities(model, ids, keep, TEMPERATURE), None, None


def log_probabilities(model: Any, ids: torch.Tensor, keep: int, temperature: float) -> torch.Tensor:
    logits = model(ids, torch.ones_like(ids)).logits[:, :-1].float() / temperature
    chosen = torch.log_softmax(logits, -1).gather(2, ids[:, 1:, None]).squeeze(2)
    return chosen[:, -keep:]


def batch(engine: Engine, rows: int = 4, temperature: float = TEMPERATURE) -> dict[str, Any]:
    """Rows whose log-probabilities are those of the model at this temperature."""
    ids = torch.randint(
        VOCABULARY, (rows, PROMPT + COMPLETION), generator=torch.Generator().manual_seed(1)
    )
    engine.model.eval()
    with torch.no_grad():
        sampled = log_probabilities(engine.model, ids, COMPLETION, temperature)
    engine.model.train()
    ones = torch.ones(rows, COMPLETION, dtype=torch.long)
    return {
        "prompt_ids": ids[:, :PROMPT], "prompt_mask": torch.ones(rows, PROMPT, dtype=torch.long),
        "completion_ids": ids[:, PROMPT:], "completion_mask": ones, "tool_mask": ones.clone(),
        "sampling_per_token_logps": sampled,
    }  # fmt: skip


def gate_of(engine: Engine) -> ParityGate:
    return ParityGate(engine)  # type: ignore[arg-type]


def test_a_sampler_with_the_same_weights_holds_although_dropout_is_on() -> None:
    engine = Engine()
    parity = gate_of(engine).check(batch(engine))
    assert parity is not None
    assert (parity.tokens, parity.dtype) == (4 * COMPLETION, "float32")
    assert parity.largest < 1e-5
    assert engine.model.training, "the model trains again after the check"


def test_the_gap_is_its_mean_and_its_maximum_over_sampled_tokens_only() -> None:
    engine = Engine()
    given = batch(engine)
    given["tool_mask"][:, :5] = 0
    given["completion_mask"][:, 8:] = 0
    given["sampling_per_token_logps"][:, :5] += 50  # of tool results
    given["sampling_per_token_logps"][:, 8:] += 50  # of padding
    given["sampling_per_token_logps"][0, 6] += 0.6
    parity = gate_of(engine).check(given)
    assert parity is not None
    assert parity.tokens == 4 * 3
    assert parity.largest == pytest.approx(0.6, abs=1e-4)
    assert parity.mean == pytest.approx(0.6 / 12, abs=1e-4)


def test_figures_are_those_of_all_ranks() -> None:
    engine = Engine(others=[[60.0, 6.0, 0.9]])  # tokens, sum and maximum of another rank
    parity = gate_of(engine).check(batch(engine))
    assert parity is not None
    assert (parity.tokens, parity.largest) == (100, pytest.approx(0.9))
    assert parity.mean == pytest.approx(0.06, abs=1e-4)


@pytest.mark.parametrize(("others", "tokens"), [([], None), ([[3.0, 0.0, 0.0]], 3)])
def test_parity_is_none_only_if_no_rank_has_sampled_a_token(
    others: list[list[float]], tokens: int | None
) -> None:
    engine = Engine(others=others)
    given = batch(engine)
    given["tool_mask"][:] = 0
    parity = gate_of(engine).check(given)
    assert (parity and parity.tokens) == tokens


def test_a_few_rows_of_a_large_batch_are_enough() -> None:
    engine = Engine()
    parity = gate_of(engine).check(batch(engine, rows=40))
    assert engine.scored_rows == [16]
    assert parity is not None
    assert parity.tokens == 16 * COMPLETION


def test_coarse_weights_are_held_to_the_limit_of_their_precision() -> None:
    engine = Engine(Model(torch.bfloat16))
    parity = gate_of(engine).check(batch(engine))
    assert parity is not None
    assert parity.dtype == "bfloat16"
    autocast = Engine()
    autocast.args.bf16 = True
    parity = gate_of(autocast).check(batch(autocast))
    assert parity is not None
    assert parity.dtype == "bfloat16"


def cause(engine: Engine, given: Tensors) -> str:
    gate = gate_of(engine)
    parity = gate.check(given)
    assert parity is not None
    assert not parity.holds
    found = gate.cause(given)
    assert engine.model.training
    return found


def test_log_probabilities_at_temperature_one_are_recognised() -> None:
    engine = Engine()
    assert "match temperature 1" in cause(engine, batch(engine, temperature=1.0))


def test_log_probabilities_of_other_weights_are_recognised() -> None:
    engine = Engine()
    given = batch(engine)
    with torch.no_grad():
        engine.model.table.weight.add_(torch.randn(VOCABULARY, VOCABULARY))
    assert "the sampler's weights differ from the trainer's" in cause(engine, given)
