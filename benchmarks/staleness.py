"""Compares steps with tools that take 1 to 5 s, played when needed and played ahead.

    python benchmarks/staleness.py [--steps N]

The tiny model with LoRA, sampled by a stand-in server in a separate process; 8 rollouts a step,
each with one call of a tool that takes 1 to 5 s, depending on its case. The same training runs with
`max_staleness` 0 and 1. A random model writes no tool calls, so every reply is parsed as one.

Bars: a step takes at most 1/1.6 of the time; the importance weight of every token is the
exponential of its log-probability by the trainer minus that by the sampler, cut off at 3; with
`max_staleness` 1, every gap to the weights that sampled is at most 1e-4; the final pass rates of
validation are equal within the 95 % interval of their difference.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import statistics
import string
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from agents import Agent, RunContextWrapper, function_tool

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.sampling_servers import StandIn

from sparring import Suite, Trainer, failed, measure, passed
from sparring.contracts.policies import ParsedCall, Reply
from sparring.engine.trainer import PolicyTrainer
from sparring.policies.families import family_named
from sparring.policies.pretrained import locate

BAR, LARGEST_GAP, CUT_OFF = 1.6, 1e-4, 3.0
GROUP, CASES, VALIDATION = 4, 2, 48


class EverythingIsACall:
    """Parses every turn as a call of the tool."""

    def parse(self, text: str, tools: object = ()) -> Reply:
        """Return the call."""
        return Reply("", calls=(ParsedCall("wait", "{}"),))


def seconds_of(case: Any) -> float:
    """Return the seconds that a case's tool call takes: 1 to 5."""
    return 1 + 4 * hashlib.sha256(case.id.encode()).digest()[0] / 255


@function_tool
async def wait(context: RunContextWrapper[Any]) -> str:
    """Take a while, the first time: what the last turn says is read as a call as well."""
    seconds, context.context["seconds"] = context.context["seconds"], 0.0
    await asyncio.sleep(seconds)
    return "done" if seconds else "again"


@measure
def even(rollout: Any) -> Any:
    """Passes rollouts with an even number of sampled tokens."""
    count = rollout.tokens.sampled
    return passed(f"{count} tokens") if count % 2 == 0 else failed(f"{count} tokens")


class Ratios:
    """Compares the corrected advantages with the expected ones, token by token."""

    def __init__(self) -> None:
        self.tokens, self.largest_error = 0, 0.0

    def check(
        self, batch: dict[str, torch.Tensor], before: torch.Tensor, mask: torch.Tensor
    ) -> None:
        """Compare the advantages of a batch with those `before` the correction."""
        gaps = (batch["old_per_token_logps"] - batch["sampling_per_token_logps"])[mask]
        wanted = before[mask] * gaps.exp().clamp(max=CUT_OFF)
        self.tokens += int(mask.sum())
        error = float((batch["advantages"][mask] - wanted).abs().max())
        self.largest_error = max(self.largest_error, error)


def train(runs: Path, server: str, steps: int, staleness: int, ratios: Ratios) -> list[dict]:
    """Train, and return the rows of the run's metrics."""
    family = replace(
        family_named("qwen3"),
        also_stops=tuple(string.ascii_letters),
        tool_calls=EverythingIsACall(),
    )
    splits = ["training"] * 40 + ["validation"] * VALIDATION
    suite = Suite.from_records([{"input": f"wait {n}", "split": s} for n, s in enumerate(splits)])
    trainer = Trainer(
        Agent(name="waiter", tools=[wait]), suite, [even], model=locate("tiny"), family=family,
        lora=True, learning_rate=5e-3, max_steps=steps, cases_per_batch=CASES,
        gradient_accumulation_steps=1, num_generations=GROUP, max_completion_length=64,
        max_turns=2, validation_cases=VALIDATION, replacement_groups=0,
        context=lambda case: {"seconds": seconds_of(case)}, sampling=[server],
        max_staleness=staleness, runs=runs, run=f"staleness-{staleness}", show_progress=False,
        guards={"no_tool_call": "off", "dead_groups": "off"},
    )  # fmt: skip
    correct = PolicyTrainer._correct

    def correct_and_check(self: PolicyTrainer, tensors: Any, mask: torch.Tensor) -> None:
        before = tensors["advantages"].clone()
        correct(self, tensors, mask)
        ratios.check(tensors, before, mask.bool())

    PolicyTrainer._correct = correct_and_check  # type: ignore[method-assign]
    try:
        result = trainer.train()
    finally:
        PolicyTrainer._correct = correct  # type: ignore[method-assign]
    return [json.loads(line) for line in result.folder.metrics.read_text().splitlines()]


def figures_of(rows: list[dict]) -> dict[str, Any]:
    """Return the figures of a run. Medians leave out the first two steps."""
    learned = [row for row in rows if "loss" in row]
    steady = learned[2:]

    def median(name: str) -> float:
        return round(statistics.median(row[name] for row in steady), 3)

    gap = "parity_gap" if "parity_gap" in learned[-1] else "sampling/sampling_logp_difference/max"
    return {
        "seconds_per_step": median("seconds"),
        "trainer_idle_seconds": median("trainer_idle_seconds"),
        "sampler_idle_seconds": median("sampler_idle_seconds"),
        "staleness": median("staleness"),
        "largest_ratio": max(row["sampling/importance_sampling_ratio/max"] for row in learned),
        "largest_gap_to_the_sampling_weights": max(row[gap] for row in learned),
        "final_pass_rate": rows[-1]["validation/pass_rate/even"],
    }


def main() -> int:
    """Print the figures; return 1 if they miss a bar."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    steps, ratios = parser.parse_args().steps, Ratios()
    server = StandIn(Path(locate("tiny"))).start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            exact, stale = (
                figures_of(train(Path(folder), server.address, steps, staleness, ratios))
                for staleness in (0, 1)
            )
    finally:
        server.kill()
    faster = exact["seconds_per_step"] / stale["seconds_per_step"]
    rates = (exact["final_pass_rate"], stale["final_pass_rate"])
    interval = 1.96 * (sum(rate * (1 - rate) for rate in rates) / VALIDATION) ** 0.5
    shown = {
        "benchmark": "staleness",
        "times_faster": round(faster, 2),
        "staleness_0": exact,
        "staleness_1": stale,
        "ratios_checked": ratios.tokens,
        "largest_error_of_a_ratio": ratios.largest_error,
        "interval_of_pass_rates": round(interval, 3),
        "bar": BAR,
        "ok": faster >= BAR
        and ratios.largest_error <= 1e-5
        and stale["largest_gap_to_the_sampling_weights"] <= LARGEST_GAP
        and abs(rates[0] - rates[1]) <= interval,
    }
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
