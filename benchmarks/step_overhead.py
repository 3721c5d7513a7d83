"""What a whole step costs beside bare TRL: same prompts, same batch, as many tokens, no tools.

    python benchmarks/step_overhead.py [--quick]

TRL samples, scores and learns by itself; ours plays through the agents SDK, judges, logs every
rollout and learns through TRL. Interleaved step by step in one process. Completions never end
by themselves on either side, so that both sample the same number of tokens. Bar: 1.05 on
SmolLM2-135M. On the tiny model, where sampling costs nothing, the ratio and what is behind it
are printed. `--quick` does the tiny model only.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from typing import Any

from agents import Agent
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from alternating import Turns
from sparring import Suite, Trainer, failed, measure, passed
from sparring.contracts.rollouts import Message
from sparring.policies.codec import ChatCodec
from sparring.policies.families import Family, family_named
from sparring.policies.model_names import locate

BAR = 1.05
GROUP, CASES = 4, 2
FAMILIES = {"smollm2": "smollm2", "tiny": "qwen3"}
# Long enough for a plain assistant's instructions; no tools, no examples.
INSTRUCTIONS = "You are a helpful assistant. Answer briefly, in one sentence. " * 4


@measure
def even(rollout):
    count = len(rollout.answer)
    return passed(f"{count} letters") if count % 2 == 0 else failed(f"{count} letters")


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true")
    given = options.parse_args()
    shown: dict[str, Any] = {"benchmark": "step_overhead", "bar": BAR, "models": {}}
    with tempfile.TemporaryDirectory() as folder:
        shown["models"]["tiny"] = beside("tiny", 20, 12, folder)
        if not given.quick:
            shown["models"]["smollm2"] = beside("smollm2", 6, 32, folder)
    held = shown["models"].get("smollm2")
    shown["ok"] = held is None or held["ratio"] <= BAR
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def beside(model: str, steps: int, tokens: int, folder: str) -> dict[str, Any]:
    turns = Turns(("ours", "trl"))
    family = replace(family_named(FAMILIES[model]), also_stops=())
    ours = our_trainer(model, family, steps, tokens, folder)
    bare = bare_trainer(model, family, steps, tokens, folder)
    ours.engine.add_callback(turns.callback("ours"))
    bare.add_callback(turns.callback("trl"))
    medians = turns.race({"ours": ours.train, "trl": bare.train})
    rollouts = GROUP * CASES
    return {
        "ratio": round(medians["ours"] / medians["trl"], 3),
        "seconds": {name: round(value, 4) for name, value in medians.items()},
        "milliseconds_per_rollout": round(1000 * (medians["ours"] - medians["trl"]) / rollouts, 2),
        "steps": steps,
        "rollouts_per_step": rollouts,
        "tokens_per_rollout": tokens,
    }


def our_trainer(model: str, family: Family, steps: int, tokens: int, folder: str) -> Trainer:
    agent = Agent(name="talker", instructions=INSTRUCTIONS)
    suite = Suite.from_records(
        [{"input": f"Tell me about number {n}.", "split": "training"} for n in range(100, 140)]
    )
    made = Trainer(
        agent, suite, [even], model=model, family=family, max_steps=steps, lora=True,
        cases_per_batch=CASES, gradient_accumulation_steps=1, num_generations=GROUP,
        max_completion_length=tokens, mask_truncated_completions=False, validation_cases=0,
        temperature=1.0, dtype="float32", runs=folder, show_progress=False,
        engine={"disable_dropout": True},
    )  # fmt: skip
    _never_stop(made)
    return made


def _never_stop(made: Trainer) -> None:
    """As with `min_new_tokens` on the other side; the work of looking for stops is the same."""
    made.policy.codec.stop_ids = frozenset({-1})


def bare_trainer(model: str, family: Family, steps: int, tokens: int, folder: str) -> GRPOTrainer:
    from peft import LoraConfig

    place = locate(model)
    tokenizer = AutoTokenizer.from_pretrained(place)
    codec = ChatCodec(tokenizer, family)
    prompts = [
        tokenizer.decode(
            codec.encode_prompt(
                [Message("system", INSTRUCTIONS), Message("user", f"Tell me about number {n}.")], []
            ).ids.tolist()
        )
        for n in range(100, 140)
    ]
    config = GRPOConfig(
        output_dir=f"{folder}/bare-{model}", max_steps=steps, num_generations=GROUP,
        per_device_train_batch_size=GROUP * CASES, max_completion_length=tokens, temperature=1.0,
        learning_rate=1e-4, gradient_checkpointing=False, bf16=False, use_cpu=True, report_to=[],
        logging_steps=1, save_strategy="no", disable_tqdm=True, disable_dropout=True,
        generation_kwargs={"min_new_tokens": tokens}, log_level="error",
    )  # fmt: skip
    bare = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(place),
        reward_funcs=lambda completions, **_: [float(len(text) % 2 == 0) for text in completions],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
    )  # fmt: skip
    from transformers import PrinterCallback

    bare.remove_callback(PrinterCallback)
    return bare


if __name__ == "__main__":
    sys.exit(main())
