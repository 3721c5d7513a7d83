"""Builds our trainer and a bare TRL trainer with the same prompts, batch and number of tokens.

The bare trainer samples, scores and updates with TRL alone. Ours plays through the agents SDK,
judges and logs every rollout, and updates through TRL. Completions never stop early on
either side, so both sides sample the same number of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from agents import Agent
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from alternating import Alternation
from sparring import Suite, Trainer, failed, measure, passed
from sparring.contracts.rollouts import Message
from sparring.policies.codec import ChatCodec
from sparring.policies.families import Family, family_named
from sparring.policies.pretrained import locate

FAMILIES = {"smollm2": "smollm2", "tiny": "qwen3"}
NUMBERS = range(100, 140)


@measure
def even(rollout):
    count = len(rollout.answer)
    return passed(f"{count} letters") if count % 2 == 0 else failed(f"{count} letters")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The model, prompts and batch of both trainers."""

    model: str
    folder: str
    steps: int
    tokens: int
    instructions: str
    group: int
    cases: int
    lora: bool = True
    rows_of_trl: int | None = None  # TRL's rows per pass, if a step's rows do not fit into one

    @property
    def family(self) -> Family:
        return replace(family_named(FAMILIES[self.model]), also_stops=())

    def time_steps(self) -> dict[str, float]:
        """Train with both, alternating steps; return the median seconds of a step of each."""
        alternation = Alternation(("ours", "trl"))
        ours, bare = our_trainer(self), bare_trainer(self)
        ours.engine.add_callback(alternation.callback("ours"))
        bare.add_callback(alternation.callback("trl"))
        return alternation.run({"ours": ours.train, "trl": bare.train})


def our_trainer(comparison: Comparison, **settings: Any) -> Trainer:
    trainer = Trainer(
        Agent(name="talker", instructions=comparison.instructions),
        Suite.from_records([{"input": question(n), "split": "training"} for n in NUMBERS]),
        [even], model=comparison.model, family=comparison.family, max_steps=comparison.steps,
        lora=comparison.lora, learning_rate=1e-4, cases_per_batch=comparison.cases,
        gradient_accumulation_steps=1, num_generations=comparison.group,
        max_completion_length=comparison.tokens, mask_truncated_completions=False,
        replacement_groups=0, guards=dict.fromkeys(("truncated", "dead_groups"), "off"),
        validation_cases=0, temperature=1.0, dtype="float32", runs=comparison.folder,
        show_progress=False, engine={"disable_dropout": True}, **settings,
    )  # fmt: skip
    # No token has the id -1, so sampling never stops early, like TRL with `min_new_tokens`, but it
    # still checks every token.
    trainer.policy.codec.stop_ids = frozenset({-1})
    return trainer


def bare_trainer(comparison: Comparison) -> GRPOTrainer:
    place = locate(comparison.model)
    tokenizer = AutoTokenizer.from_pretrained(place)
    codec = ChatCodec(tokenizer, comparison.family)
    prompts = [
        tokenizer.decode(
            codec.encode_prompt(
                [Message("system", comparison.instructions), Message("user", question(n))], []
            ).ids.tolist()
        )
        for n in NUMBERS
    ]
    rows = comparison.group * comparison.cases
    per_pass = comparison.rows_of_trl or rows
    config = GRPOConfig(
        output_dir=f"{comparison.folder}/bare-{comparison.model}", max_steps=comparison.steps,
        num_generations=comparison.group, per_device_train_batch_size=per_pass,
        gradient_accumulation_steps=rows // per_pass,
        max_completion_length=comparison.tokens, temperature=1.0, learning_rate=1e-4,
        gradient_checkpointing=False, bf16=False, use_cpu=True, report_to=[], logging_steps=1,
        save_strategy="no", disable_tqdm=True, disable_dropout=True, log_level="error",
        generation_kwargs={"min_new_tokens": comparison.tokens},
    )  # fmt: skip
    adapters = LoraConfig(
        r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    bare = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(place),
        reward_funcs=lambda completions, **_: [float(len(text) % 2 == 0) for text in completions],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        peft_config=adapters if comparison.lora else None,
    )
    bare.remove_callback(PrinterCallback)
    return bare


def question(number: int) -> str:
    return f"Tell me about number {number}."
