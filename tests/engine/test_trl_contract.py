"""What the engine expects of TRL, and of the Trainer beneath it: names, and behaviour.

When TRL changes, this fails first, and says what to look at in src/sparring/engine/trainer.py.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from sparring.policies.families import family_named

LEANT_ON = {
    "_init_training_state": [
        "self", "max_steps", "num_update_steps_per_epoch", "num_train_epochs",
        "resume_from_checkpoint", "trial",
    ],
    "_prepare_for_training": ["self", "max_steps", "train_dataloader", "resume_from_checkpoint"],
    "_get_train_sampler": ["self"],
    "_get_per_token_logps_and_entropies": [
        "self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size",
    ],
    "_prepare_inputs": ["self", "generation_batch"],
    "_compute_loss": ["self", "model", "inputs"],
    "_clip_grad_norm": ["self", "model"],
    "_get_grad_norm": ["self", "model", "grad_norm"],
    "_get_learning_rate": ["self"],
    "log": ["self", "logs"],
    "_save_checkpoint": ["self", "model", "trial"],
    "_get_output_dir": ["self", "trial"],
    "_load_from_checkpoint": ["self", "resume_from_checkpoint"],
    "_load_rng_state": ["self", "checkpoint"],
    "create_model_card": ["self"],
    "remove_callback": ["self", "callback"],
}  # fmt: skip


@pytest.mark.parametrize("name", LEANT_ON)
def test_a_method_is_there_with_the_parameters_we_use(name):
    method = getattr(GRPOTrainer, name, None)
    assert method is not None, f"TRL {trl.__version__} has no GRPOTrainer.{name} any more"
    given = list(inspect.signature(method).parameters)
    wanted = LEANT_ON[name]
    assert given[: len(wanted)] == wanted, (
        f"GRPOTrainer.{name} of TRL {trl.__version__} takes {given}, and we count on {wanted}"
    )


def test_the_trainer_takes_what_it_is_built_of():
    taken = inspect.signature(GRPOTrainer.__init__).parameters
    for name in ("model", "args", "train_dataset", "processing_class", "peft_config", "optimizers",
                 "reward_funcs"):  # fmt: skip
        assert name in taken, f"GRPOTrainer of TRL {trl.__version__} takes no {name}"


def test_the_head_scores_tokens_in_chunks_of_the_given_size(monkeypatch):
    from trl.kernels import chunked_logprob
    from trl.trainer.utils import _ChunkedLogProbFunction

    sizes = []
    plain = chunked_logprob._forward_tile

    def noted(tile, *given, **named):
        sizes.append(len(tile))
        return plain(tile, *given, **named)

    monkeypatch.setattr(chunked_logprob, "_forward_tile", noted)
    monkeypatch.setattr(chunked_logprob, "TOKEN_CHUNK_SIZE", 3)
    hidden, weight = torch.randn(7, 4), torch.randn(11, 4)
    targets = torch.arange(7)
    logps = _ChunkedLogProbFunction.apply(
        hidden, weight, None, targets, 1.0, 32768, None, 1.0, ("log_probs",)
    )[0]
    assert sizes == [3, 3, 1]
    whole = torch.log_softmax(hidden @ weight.T, -1)[range(7), targets]
    assert torch.allclose(logps, whole, atol=1e-6)


def test_the_vllm_generation_is_called_as_it_is_made():
    from trl.generation.vllm_generation import VLLMGeneration

    taken = list(inspect.signature(VLLMGeneration.generate).parameters)
    assert taken[:4] == ["self", "prompts", "images", "num_generations"]


# ---------------------------------------------------------------------- behaviour, in one training


class Watched(GRPOTrainer):
    """TRL's own trainer: notes what it hands to the seams that we use."""

    def __init__(self, **given: Any) -> None:
        self.scored: list[dict[str, Any]] = []
        self.scorings: list[int] = []  # calls for log-probabilities in each loss
        self.losses: list[dict[str, Any]] = []
        super().__init__(**given)

    def _calculate_rewards(self, inputs: Any, *given: Any) -> torch.Tensor:
        return torch.tensor([[0.0], [1.0], [float("nan")], [0.5]] * (len(inputs) // 4))

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        batch = super()._generate_and_score_completions(inputs)
        self.scored.append(batch)
        return batch

    def _get_per_token_logps_and_entropies(self, *given: Any, **named: Any) -> Any:
        if self.scorings and torch.is_grad_enabled():
            self.scorings[-1] += 1
        return super()._get_per_token_logps_and_entropies(*given, **named)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self.scorings.append(0)
        self.losses.append(inputs)
        return super()._compute_loss(model, inputs)

    def _get_output_dir(self, trial: Any) -> str:
        return f"{self.args.output_dir}/elsewhere"


PROMPT, COMPLETION, MASK = [5, 6, 7], [8, 9, 10, 11], [1, 1, 0, 1]
PROPOSED: list[list[str]] = []


def rollouts(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
    assert isinstance(trainer, Watched)
    PROPOSED.append(list(prompts))
    return {
        "prompt_ids": [PROMPT] * len(prompts),
        "completion_ids": [COMPLETION] * len(prompts),
        "logprobs": [[-0.5] * 4] * len(prompts),
        "env_mask": [MASK] * len(prompts),
    }


def zero(completions: Any, **_: Any) -> list[float]:
    return [0.0] * len(completions)


@pytest.fixture(scope="module")
def trained(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """Two steps of two passes, with LoRA and a KL, on completions that we bring."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    tokenizer.chat_template = family_named("qwen3").template
    config = GRPOConfig(
        output_dir=str(tmp_path_factory.mktemp("trl")), max_steps=2, num_generations=4, beta=0.1,
        per_device_train_batch_size=4, gradient_accumulation_steps=2, max_completion_length=8,
        use_cpu=True, bf16=False, report_to=[], logging_steps=1, save_strategy="steps",
        save_steps=2, disable_tqdm=True, gradient_checkpointing=False, learning_rate=1e-2,
    )  # fmt: skip
    trainer = Watched(
        model=AutoModelForCausalLM.from_pretrained(tiny_folder),
        args=config,
        train_dataset=Dataset.from_list([{"prompt": f"case-{n}"} for n in range(8)]),
        processing_class=tokenizer,
        reward_funcs=[zero],
        rollout_func=rollouts,
        peft_config=LoraConfig(r=2, target_modules="all-linear"),
    )
    trainer.train()
    return trainer


def test_the_seam_gets_each_prompt_once_per_rollout_in_whole_groups(trained):
    first = PROPOSED[0]
    assert len(first) == 8
    assert [len(set(first[start : start + 4])) for start in (0, 4)] == [1, 1]


def test_a_scored_batch_holds_our_tokens_masks_and_log_probabilities(trained):
    batch = trained.scored[0]
    assert batch["prompt_ids"].tolist() == [PROMPT] * 8
    assert batch["completion_ids"].tolist() == [COMPLETION] * 8
    assert batch["tool_mask"].tolist() == [MASK] * 8
    assert torch.allclose(batch["sampling_per_token_logps"], torch.full((8, 4), -0.5))
    assert {"prompt_mask", "completion_mask", "num_items_in_batch"} <= batch.keys()


def test_rewards_that_are_missing_stay_out_of_the_group(trained):
    advantages = trained.scored[0]["advantages"][:4]
    assert advantages[2] == 0
    assert advantages[[0, 1, 3]].sum().abs() < 1e-4, "the mean is over the three that are there"
    assert advantages[1] > 0 > advantages[0]


def test_a_generation_is_split_into_passes_and_a_loss_scores_once(trained):
    assert [len(each["completion_ids"]) for each in trained.losses] == [4] * 4
    assert trained.scorings == [1] * 4


def test_a_kl_with_adapters_is_to_the_base_without_them(trained):
    """In the first step both are the same model, so the KL is 0; later it is not."""
    assert "ref_per_token_logps" in trained.scored[0]
    reference = [each["ref_per_token_logps"] for each in trained.scored]
    assert torch.allclose(reference[0], reference[1], atol=1e-5), "training moved the reference"


def test_a_checkpoint_is_written_into_the_folder_that_we_name(trained):
    folder = Path(trained.args.output_dir) / "elsewhere" / "checkpoint-2"
    assert (folder / "adapter_model.safetensors").is_file()
    assert (folder / "trainer_state.json").is_file()


def test_the_head_passes_a_cache_through_to_the_model(tiny_folder):
    from trl.trainer.utils import add_fused_lm_head

    model = AutoModelForCausalLM.from_pretrained(tiny_folder)
    ids = torch.tensor([[5, 6, 7, 8]])
    whole = model(input_ids=ids).logits
    add_fused_lm_head(model)
    with torch.no_grad():
        cache = model.model(input_ids=ids[:, :2], use_cache=True).past_key_values
        rest = model.model(input_ids=ids[:, 2:], past_key_values=cache).last_hidden_state
    assert torch.allclose(model.lm_head(rest), whole[:, 2:], atol=1e-5)


def test_supervised_training_learns_from_token_ids_under_their_mask(tiny_folder, tmp_path):
    from trl import SFTConfig, SFTTrainer

    config = SFTConfig(
        output_dir=str(tmp_path), max_steps=1, use_cpu=True, bf16=False, report_to=[],
        max_length=None, packing=False, disable_tqdm=True, per_device_train_batch_size=1,
    )  # fmt: skip
    rows = [{"input_ids": [5, 6, 7, 8], "assistant_masks": [0, 0, 1, 1]}]
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(tiny_folder),
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(tiny_folder),
    )
    batch = next(iter(trainer.get_train_dataloader()))
    assert batch["labels"].tolist() == [[-100, -100, 7, 8]]
