"""Our trainer and TRL by itself on the same prompts, batch and number of tokens.

TRL samples, scores and learns by itself; ours plays through the agents SDK, judges, logs every
rollout and learns through TRL. Completions never end by themselves on either side, so that both
sample the same number of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from agents import Agent
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from alternating import Turns
from sparring import Suite, Trainer, failed, measure, passed
from sparring.contracts.rollouts import Message
from sparring.policies.codec import ChatCodec
from sparring.policies.families import Family, family_named
from sparring.policies.model_names import locate

FAMILIES = {"smollm2": "smollm2", "tiny": "qwen3"}
NUMBERS = range(100, 140)


@measure
def even(rollout):
    count = len(rollout.answer)
    return passed(f"{count} letters") if count % 2 == 0 else failed(f"{count} letters")


@dataclass(frozen=True, slots=True)
class Contest:
    """What both sides train."""

    model: str
    folder: str
    steps: int
    tokens: int
    instructions: str
    group: int
    cases: int
    lora: bool = True
    rows_of_trl: int | None = None  # in a pass, where all rows of a step would not fit

    @property
    def family(self) -> Family:
        return replace(family_named(FAMILIES[self.model]), also_stops=())

    def race(self) -> dict[str, float]:
        """Median seconds of whole steps, interleaved."""
        turns = Turns(("ours", "trl"))
        ours, bare = our_trainer(self), bare_trainer(self)
        ours.engine.add_callback(turns.callback("ours"))
        bare.add_callback(turns.callback("trl"))
        return turns.race({"ours": ours.train, "trl": bare.train})


def our_trainer(contest: Contest, **settings: Any) -> Trainer:
    made = Trainer(
        Agent(name="talker", instructions=contest.instructions),
        Suite.from_records([{"input": question(n), "split": "training"} for n in NUMBERS]),
        [even], model=contest.model, family=contest.family, max_steps=contest.steps,
        lora=contest.lora, learning_rate=1e-4, cases_per_batch=contest.cases,
        gradient_accumulation_steps=1, num_generations=contest.group,
        max_completion_length=contest.tokens, mask_truncated_completions=False,
        replacement_groups=0, guards=dict.fromkeys(("truncated", "dead_groups"), "off"),
        validation_cases=0, temperature=1.0, dtype="float32", runs=contest.folder,
        show_progress=False, engine={"disable_dropout": True}, **settings,
    )  # fmt: skip
    # As `min_new_tokens` on the other side; the work of looking for stops is the same.
    made.policy.codec.stop_ids = frozenset({-1})
    return made


def bare_trainer(contest: Contest) -> GRPOTrainer:
    place = locate(contest.model)
    tokenizer = AutoTokenizer.from_pretrained(place)
    codec = ChatCodec(tokenizer, contest.family)
    prompts = [
        tokenizer.decode(
            codec.encode_prompt(
                [Message("system", contest.instructions), Message("user", question(n))], []
            ).ids.tolist()
        )
        for n in NUMBERS
    ]
    rows = contest.group * contest.cases
    per_pass = contest.rows_of_trl or rows
    config = GRPOConfig(
        output_dir=f"{contest.folder}/bare-{contest.model}", max_steps=contest.steps,
        num_generations=contest.group, per_device_train_batch_size=per_pass,
        gradient_accumulation_steps=rows // per_pass,
        max_completion_length=contest.tokens, temperature=1.0, learning_rate=1e-4,
        gradient_checkpointing=False, bf16=False, use_cpu=True, report_to=[], logging_steps=1,
        save_strategy="no", disable_tqdm=True, disable_dropout=True, log_level="error",
        generation_kwargs={"min_new_tokens": contest.tokens},
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
        peft_config=adapters if contest.lora else None,
    )
    bare.remove_callback(PrinterCallback)
    return bare


def question(number: int) -> str:
    return f"Tell me about number {number}."
