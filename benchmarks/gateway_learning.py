"""Compares training a LangGraph agent through the gateway with training the same agent on the SDK.

    python benchmarks/gateway_learning.py [--seed N] [--steps N] [--cases N]

The task is that of benchmarks/learning.py: SmolLM2-135M as the assistant of a shop, trained twice
with the same settings and seed. One agent runs on the agents SDK, the other on LangGraph
(`make frameworks` installs it), as a service behind the gateway. Bars: the intervals of the
held-out pass rates overlap, and LangGraph's training takes at most 1.15 times as long.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "shop"))

from shop import Shop, price, stock, weight
from sparring import Environment, Split, Suite, Trainer, evaluate
from sparring.environments.examples import input_items

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv-frameworks" / "langgraph" / "bin" / "python"
AGENT = ROOT / "benchmarks" / "any_agent" / "langgraph_shop.py"
MOST_TIME = 1.15


class LangGraphShop(Environment):
    """The shop, played by a LangGraph agent."""

    model = "smollm2"
    measures = Shop.measures

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url  # type: ignore[misc]

    def suite(self) -> Any:
        """The cases of the shop, each with its worked examples: the agent makes its own prompts."""
        shown = input_items(Shop().examples)
        cases = [case for split in Split for case in Shop().suite().cases(split)]
        return Suite.from_records(
            [{**case.fields, "id": case.id, "split": case.split, "right": case.expected}
             for case in cases],
            id="id",
            split="split",
            input=lambda row: [*shown, {"role": "user", "content": row["question"]}],
            expected="right",
        )  # fmt: skip


@contextmanager
def service() -> Iterator[str]:
    """Run the LangGraph agent, and yield its address."""
    schemas = json.dumps({tool.name: tool.params_json_schema for tool in (price, stock, weight)})
    process = subprocess.Popen([PYTHON, AGENT, schemas], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/rollout"
    finally:
        process.terminate()
        process.wait()


def measure(environment: Environment, given: argparse.Namespace, runs: str) -> dict[str, Any]:
    """Train on the environment; return the held-out pass rates before and after, and the time."""
    trainer = Trainer(
        environment,
        max_steps=given.steps,
        num_generations=8,
        cases_per_batch=4,
        gradient_accumulation_steps=1,
        learning_rate=3e-4,
        max_completion_length=80,
        max_turns=3,
        mask_truncated_completions=False,
        lora=True,
        seed=given.seed,
        validation_cases=0,
        engine={"lr_scheduler_type": "constant"},
        echo_coefficient=0.05,
        runs=runs,
    )
    before = held_out(environment, trainer, given, runs)
    started = time.monotonic()
    result = trainer.train()
    minutes = (time.monotonic() - started) / 60
    rows = [row for row in result.history if "loss" in row]
    return {
        "before": before,
        "after": held_out(environment, trainer, given, runs),
        "training_minutes": round(minutes, 2),
        "losses": [row["loss"] for row in rows],
    }


def held_out(
    environment: Environment, trainer: Trainer, given: argparse.Namespace, runs: str
) -> dict[str, float]:
    """Return the share of held-out cases with a right answer, and its 95 % interval."""
    shown = evaluate(
        environment,
        policy=trainer.policy,
        split="held-out",
        cases=given.cases,
        max_completion_length=80,
        max_turns=3,
        seed=given.seed + 1,
        runs=runs,
    )
    if unscored := shown.summary.unscored:
        raise SystemExit(f"{unscored} rollouts were not scored; see {shown.folder.path}")
    rate = shown.summary.measures["numeric"]["pass_rate"]
    return {name: round(rate[name], 4) for name in ("value", "low", "high")}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--steps", type=int, default=8)
    options.add_argument("--cases", type=int, default=128, help="held-out cases")
    given = options.parse_args()
    if not PYTHON.exists():
        raise SystemExit("LangGraph is not installed; run make frameworks")
    with tempfile.TemporaryDirectory() as runs, service() as url:
        sdk = measure(Shop(), given, runs)
        langgraph = measure(LangGraphShop(url), given, runs)
    ratio = langgraph["training_minutes"] / max(sdk["training_minutes"], 0.01)
    one, other = sdk["after"], langgraph["after"]
    is_same = one["low"] <= other["high"] and other["low"] <= one["high"]
    shown = {
        "benchmark": "gateway_learning",
        "seed": given.seed,
        "steps": given.steps,
        "sdk": sdk,
        "langgraph": langgraph,
        "time_ratio": round(ratio, 3),
        "bar": {"time_ratio": MOST_TIME, "after": "intervals overlap"},
        "ok": is_same and ratio <= MOST_TIME,
    }
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
