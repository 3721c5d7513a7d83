"""Measures the memory of an update by rows and vocabulary, over steps, and under a limit of 3 GB.

    python benchmarks/pass_memory.py [--no-group]

1. Peak memory of a pass when rows times vocabulary grows by a factor of eight: the head computes in
   tiles, so memory does not grow with the product. Bar: at most 3 times as much.
2. Resident memory after each of 12 steps over rows of changing length, with and without returning
   freed memory to the system. Bar: with it, growth of at most 10 % over the last six steps.
3. The same two training steps of SmolLM2-135M without a limit, and in a control group of 3 GB
   (needs root). Bar: the limited run finishes, with the same rollouts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LIMIT = 3 * 10**9
CODE = """
import sys
sys.path.insert(0, {shop!r})
from shop import Shop
from sparring import train
if __name__ == "__main__":
    shop = Shop()
    result = train(
        shop.agent(), shop.suite(), shop.measures, examples=shop.examples, max_steps=2,
        num_generations=8, cases_per_batch=4, gradient_accumulation_steps=1, learning_rate=3e-4,
        max_completion_length=80, max_turns=3, lora=True, validation_cases=0,
        replacement_groups=0, draw_by_difficulty=False, run={run!r}, runs={runs!r},
    )
"""


def peak(rows: int, vocabulary: int) -> int:
    """Return the bytes that a forward and backward pass needs at its peak."""
    code = f"""
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from trl.trainer.utils import add_fused_lm_head
from sparring.machine import share_machine
from sparring.engine.forward import small_tiles_on_cpu
from sparring.engine.forward import completion_scores
share_machine()
shape = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16)
model = LlamaForCausalLM(LlamaConfig(vocab_size={vocabulary}, **shape)).train()
add_fused_lm_head(model, temperature=1.0, outputs=("log_probs", "entropy"))
ids = torch.arange(64 + 64).remainder(900).repeat({rows}, 1)
def memory(name):
    return int(dict(line.split(":", 1) for line in open("/proc/self/status"))[name].split()[0])
open("/proc/self/clear_refs", "w").write("5")
before = memory("VmRSS")
with small_tiles_on_cpu(ids.device):
    completion_scores(model, model, ids, torch.ones_like(ids), 64).log_probs.sum().backward()
print((memory("VmHWM") - before) * 1024)
"""
    return int(_run([sys.executable, "-c", code]).split()[-1])


def growth() -> dict[str, list[float]]:
    """Return the resident megabytes after each step; every step has rows of another length."""
    code = """
import sys
if sys.argv[1] == "sparring":
    from sparring.machine import share_machine
    share_machine()
import torch
from transformers import LlamaConfig, LlamaForCausalLM
shape = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=8, num_attention_heads=4)
model = LlamaForCausalLM(LlamaConfig(vocab_size=4000, **shape)).train()
for step in range(12):
    width = 64 + 37 * (step * 5 % 7)
    ids = torch.arange(width).remainder(900).repeat(8, 1)
    model(input_ids=ids, labels=ids).loss.backward()
    model.zero_grad()
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    print(int(status["VmRSS"].split()[0]) // 1024)
"""
    return {
        way: [float(each) for each in _run([sys.executable, "-c", code, way]).split()]
        for way in ("sparring", "plain")
    }


def train_in_group() -> dict[str, Any]:
    shop = str(Path(__file__).resolve().parent.parent / "examples" / "shop")
    with tempfile.TemporaryDirectory() as runs:
        results = {}
        for run in ("roomy", "tight"):
            script = Path(runs) / f"{run}.py"
            script.write_text(CODE.format(shop=shop, run=run, runs=runs))
            with _Group(LIMIT if run == "tight" else None) as group:
                _run([sys.executable, str(script)], group)
            rollouts = sorted((Path(runs) / run / "rollouts").rglob("*.jsonl"))
            passes = json.loads((Path(runs) / run / "passes.json").read_text())
            results[run] = {
                "rows_a_pass": passes["rows"],
                "rollouts": [_key_and_answer(line) for path in rollouts for line in path.open()],
            }
    same = results["roomy"]["rollouts"] == results["tight"]["rollouts"]
    counts = {run: len(each.pop("rollouts")) for run, each in results.items()}
    return {"limit": LIMIT, "rollouts": counts["tight"], "same_rollouts": same, **results}


def _key_and_answer(line: str) -> Any:
    record = json.loads(line)
    return [record.get("key") or record.get("id"), record.get("answer")]


class _Group:
    """A control group (v1 or v2) with a memory limit for a child; None creates no group."""

    def __init__(self, limit: int | None) -> None:
        root = Path("/sys/fs/cgroup")
        is_v1 = (root / "memory").is_dir()
        self._limit = limit
        self._place = (root / "memory" if is_v1 else root) / f"sparring-bench-{os.getpid()}"
        self._file = "memory.limit_in_bytes" if is_v1 else "memory.max"

    def __enter__(self) -> Path | None:
        if self._limit is None:
            return None
        self._place.mkdir()
        (self._place / self._file).write_text(str(self._limit))
        return self._place / "cgroup.procs"

    def __exit__(self, *_: object) -> None:
        if self._limit is not None:
            self._place.rmdir()


def _run(command: list[str], group: Path | None = None) -> str:
    def enter() -> None:
        if group is not None:
            group.write_text(str(os.getpid()))

    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, preexec_fn=enter)
    return done.stdout


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--no-group", action="store_true", help="skip the control group")
    given = options.parse_args()
    small, large = peak(8, 16_000), peak(16, 64_000)
    steps = growth()
    last = steps["sparring"][-6:]
    shown: dict[str, Any] = {
        "benchmark": "pass_memory",
        "peak_megabytes": {"8 rows x 16,000": small // 10**6, "16 rows x 64,000": large // 10**6},
        "grew_by": round(large / small, 2),
        "resident_megabytes_by_step": steps,
    }
    is_fine = large <= 3 * small and max(last) <= 1.1 * min(last)
    if not given.no_group:
        shown["group"] = train_in_group()
        is_fine = is_fine and shown["group"]["same_rollouts"]
    print(json.dumps({**shown, "ok": is_fine}))
    return 0 if is_fine else 1


if __name__ == "__main__":
    raise SystemExit(main())
