"""Compares the time of a step whose tool is slow with that of TRL's own `tools=` loop.

    python benchmarks/tool_step.py [--quick]

The tiny model, 16 rollouts a step, each with one call of a tool that takes 0.2 s. A random model
writes no tool calls, so both sides parse every first turn as one. TRL runs the tools one after
another; Sparring runs them at the same time. Bar: at least 4 times faster. `--quick` requires 2.5
times, for a machine with other load.
"""

from __future__ import annotations

import argparse
import json
import string
import sys
import tempfile
import time
from dataclasses import replace
from typing import Any

import trl.trainer.grpo_trainer as grpo_trainer
from agents import Agent, RunContextWrapper, function_tool
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from alternating import Alternation
from sparring import Suite, Trainer, failed, measure, passed
from sparring.contracts.policies import ParsedCall, Reply
from sparring.policies.families import family_named
from sparring.policies.pretrained import locate

BAR, QUICK_BAR = 4.0, 2.5
STEPS, GROUP, CASES, SECONDS = 8, 4, 4, 0.2


class EverythingIsACall:
    def parse(self, text: str, tools: object = ()) -> Reply:
        return Reply("", calls=(ParsedCall("wait", "{}"),))


@function_tool
def wait(context: RunContextWrapper[Any]) -> str:
    """Take a while, the first time: what the last turn says is read as a call as well."""
    context.context["calls"] += 1
    if context.context["calls"] > 1:
        return "again"
    time.sleep(SECONDS)
    return "done"


@measure
def even(rollout):
    count = rollout.tokens.sampled
    return passed(f"{count} tokens") if count % 2 == 0 else failed(f"{count} tokens")


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--quick", action="store_true")
    bar = QUICK_BAR if options.parse_args().quick else BAR
    with tempfile.TemporaryDirectory() as folder:
        alternation = Alternation(("ours", "trl"))
        ours, bare = our_trainer(folder), bare_trainer(folder)
        ours.engine.add_callback(alternation.callback("ours"))
        bare.add_callback(alternation.callback("trl"))
        result: list[Any] = []
        alternation.run({"ours": lambda: result.append(ours.train()), "trl": bare.train})
        # The fastest step of each, because other load can only slow a step down.
        best = {name: min(seconds[1:]) for name, seconds in alternation.seconds.items()}
        called = sum(
            call.result == "done" for each in result[0].rollouts() for call in each.tool_calls
        )
    faster = best["trl"] / best["ours"]
    shown = {
        "benchmark": "tool_step",
        "times_faster": round(faster, 2),
        "seconds": {name: round(value, 3) for name, value in best.items()},
        "tool_calls_per_step": {"ours": called / STEPS, "trl": bare.calls / STEPS},
        "bar": bar,
        "ok": faster >= bar and called == bare.calls == STEPS * GROUP * CASES,
    }
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def our_trainer(folder: str) -> Trainer:
    family = replace(
        family_named("qwen3"),
        also_stops=tuple(string.ascii_letters),
        tool_calls=EverythingIsACall(),
    )
    suite = Suite.from_records([{"input": f"wait {n}", "split": "training"} for n in range(40)])
    return Trainer(
        Agent(name="waiter", tools=[wait]), suite, [even], model="tiny", family=family,
        max_steps=STEPS, cases_per_batch=CASES, gradient_accumulation_steps=1,
        num_generations=GROUP, max_completion_length=256, max_turns=2, validation_cases=0,
        replacement_groups=0, context=lambda: {"calls": 0}, runs=folder, show_progress=False,
    )  # fmt: skip


def _even_tokens(completion_ids: Any, **_: Any) -> list[float]:
    return [float(len(ids) % 2 == 0) for ids in completion_ids]


class WithCalls(GRPOTrainer):
    """TRL's trainer, with every first turn parsed as a tool call."""

    calls = 0
    parses_calls = True

    def _tool_call_loop(self, *given: Any) -> Any:
        self.parses_calls = False
        try:
            return super()._tool_call_loop(*given)
        finally:
            self.parses_calls = True


def bare_trainer(folder: str) -> WithCalls:
    place = locate("tiny")
    tokenizer = AutoTokenizer.from_pretrained(place)
    tokenizer.chat_template = family_named("qwen3").template
    tokenizer.response_template = "(read below)"
    model = AutoModelForCausalLM.from_pretrained(place)
    stops = [tokenizer.convert_tokens_to_ids(letter) for letter in string.ascii_letters]
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, *stops]
    config = GRPOConfig(
        output_dir=f"{folder}/bare", max_steps=STEPS, num_generations=GROUP,
        per_device_train_batch_size=GROUP * CASES, max_completion_length=256, temperature=0.8,
        gradient_checkpointing=False, bf16=False, use_cpu=True, report_to=[], logging_steps=1,
        save_strategy="no", disable_tqdm=True, log_level="error", max_tool_calling_iterations=1,
    )  # fmt: skip

    def wait() -> str:
        """Take a while."""
        bare.calls += 1
        time.sleep(SECONDS)
        return "done"

    def parse(tokenizer: Any, ids: Any, **_: Any) -> dict[str, Any]:
        if not bare.parses_calls:
            return {"role": "assistant", "content": tokenizer.decode(ids)}
        call = {"type": "function", "function": {"name": "wait", "arguments": {}}}
        return {"role": "assistant", "content": "", "tool_calls": [call]}

    grpo_trainer.parse_response = parse
    bare = WithCalls(
        model=model,
        reward_funcs=_even_tokens,
        args=config,
        train_dataset=Dataset.from_dict(
            {"prompt": [[{"role": "user", "content": f"wait {n}"}] for n in range(40)]}
        ),
        processing_class=tokenizer,
        tools=[wait],
    )
    bare.remove_callback(PrinterCallback)
    return bare


if __name__ == "__main__":
    sys.exit(main())
