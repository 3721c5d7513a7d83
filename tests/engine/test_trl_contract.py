"""Every name of TRL's, and of the Trainer beneath it, that the engine leans on.

When TRL moves, this fails first, and says what to look at in src/sparring/engine/grpo.py.
"""

from __future__ import annotations

import inspect

import pytest
import torch
import transformers
import trl
from trl import GRPOTrainer

LEANT_ON = {
    "_generate_and_score_completions": ["self", "inputs"],
    "_calculate_rewards": ["self", "inputs", "prompts", "completions", "completion_ids_list"],
    "_get_per_token_logps_and_entropies": [
        "self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size",
    ],
    "_prepare_inputs": ["self", "generation_batch"],
    "_compute_loss": ["self", "model", "inputs"],
    "_save_checkpoint": ["self", "model", "trial"],
    "_get_output_dir": ["self", "trial"],
    "_load_from_checkpoint": ["self", "resume_from_checkpoint"],
    "create_model_card": ["self"],
    "train": ["self", "resume_from_checkpoint"],
    "add_callback": ["self", "callback"],
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


def test_the_rollout_seam_is_a_parameter_of_the_trainer():
    taken = inspect.signature(GRPOTrainer.__init__).parameters
    for name in ("model", "args", "train_dataset", "processing_class", "peft_config", "optimizers",
                 "reward_funcs", "rollout_func"):  # fmt: skip
        assert name in taken, f"GRPOTrainer of TRL {trl.__version__} takes no {name}"


def test_the_seam_gets_prompts_and_the_trainer_and_gives_these_fields():
    source = inspect.getsource(GRPOTrainer._generate)
    for piece in ("self.rollout_func(prompts, self)", '"prompt_ids", "completion_ids", "logprobs"',
                  'extra_fields.pop("env_mask", None)'):  # fmt: skip
        assert piece in source, f"TRL {trl.__version__}: GRPOTrainer._generate lacks {piece}"


def test_a_scored_batch_holds_what_the_parity_gate_reads():
    source = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages",
                 "tool_mask", "sampling_per_token_logps", "num_items_in_batch"):  # fmt: skip
        assert f'"{name}"' in source, f"TRL {trl.__version__}: a scored batch has no {name}"


def test_rewards_that_are_missing_stay_out_of_the_group():
    source = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    assert "unscorable_mask = torch.isnan(rewards_per_func).all(dim=1)" in source


def test_a_checkpoint_is_written_into_the_folder_that_we_name():
    source = inspect.getsource(transformers.Trainer._save_checkpoint)
    assert "self._get_output_dir(trial=trial)" in source
    assert 'f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"' in source


def test_the_head_asks_one_function_whether_to_leave_prompts_out():
    from trl.trainer import utils

    source = inspect.getsource(utils)
    assert source.count("_use_triton(") == 1, "look at src/sparring/engine/cpu_head.py"
    assert "compact = _use_triton(hidden_states.device)" in source


def test_the_head_scores_as_many_tokens_at_a_time_as_it_is_told(monkeypatch):
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


def test_inputs_are_prepared_from_what_we_prepare_them_from():
    source = inspect.getsource(GRPOTrainer._prepare_inputs)
    for piece in ("self.args.steps_per_generation * self.num_iterations", "self._buffered_inputs",
                  "shuffle_sequence_dict", "split_tensor_dict"):  # fmt: skip
        assert piece in source, f"TRL {trl.__version__}: _prepare_inputs lacks {piece}"


def test_a_loss_asks_once_for_log_probabilities_and_scales_by_the_window():
    source = inspect.getsource(GRPOTrainer._compute_loss)
    assert source.count("self._get_per_token_logps_and_entropies(") == 1
    assert "self.current_gradient_accumulation_steps / self.args.steps_per_generation" in source


def test_the_head_takes_a_cache_along():
    from trl.trainer.utils import add_fused_lm_head

    source = inspect.getsource(add_fused_lm_head)
    assert "getattr(self, backbone_attr)(*args, **kwargs)" in source, "see shared_prompts.py"


def test_adapters_have_a_reference_of_their_own_by_this_name():
    source = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    assert '"ref" if "ref" in model.peft_config else None' in source, "see warm_start.py"


def test_supervised_training_takes_token_ids_with_masks():
    from trl import SFTTrainer

    source = inspect.getsource(SFTTrainer._prepare_dataset)
    assert '"assistant_masks"' in source
    assert 'example["input_ids"]' in source


def test_the_vllm_generation_is_called_as_it_is_made():
    from trl.generation.vllm_generation import VLLMGeneration

    taken = list(inspect.signature(VLLMGeneration.generate).parameters)
    assert taken[:4] == ["self", "prompts", "images", "num_generations"]
