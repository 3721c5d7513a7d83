"""`python bare_train.py MODEL FOLDER`: a script on plain TRL that exits after its first step."""

import sys

from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

TOKENS = 32


class FirstStep(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        print("first step", flush=True)
        sys.exit(0)


def main(model: str, folder: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)
    instructions = "You are a helpful assistant. Answer briefly."
    prompts = [f"{instructions}\nTell me about number {number}." for number in range(100, 140)]
    config = GRPOConfig(
        output_dir=folder, max_steps=2, num_generations=4, per_device_train_batch_size=8,
        gradient_accumulation_steps=1, max_completion_length=TOKENS, temperature=0.8,
        learning_rate=1e-4, gradient_checkpointing=False, bf16=False, use_cpu=True, report_to=[],
        save_strategy="no", disable_tqdm=True, generation_kwargs={"min_new_tokens": TOKENS},
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model),
        reward_funcs=lambda completions, **_: [float(len(str(each)) % 2) for each in completions],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"),
        callbacks=[FirstStep()],
    )
    trainer.train()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
