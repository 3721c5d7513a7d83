"""Measures what keeping the key/value cache between turns saves, with weights in this process.

SmolLM2, 8 different cases with prompts of 1,500 tokens, five turns, each followed by a tool result
of 20 tokens. Samples the same turns alternately with the cache and without it, and measures CPU
time: `speedup` is the time of all five turns without the cache over the time with it.
`later_speedup` leaves out the first turn, which is the same work for both.

Bar: at least 2 with up to 16 sampled tokens a turn. With more (`--tokens 64`), the speedup is
printed without a bar.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from array import array
from typing import Any

import torch

from sparring.contracts.policies import SampleKey, SampleRequest, Sampling
from sparring.contracts.rollouts import RolloutKey
from sparring.policies.caches import TurnCache
from sparring.policies.generation import generate
from sparring.policies.transformers_policy import TransformersPolicy

TURNS, RESULT, BAR = 5, 20, 2.0
BUDGET = 8 * 2**30


def requests(prompts: list[list[int]], turn: int, tokens: int) -> list[SampleRequest]:
    """Return the requests of one turn."""
    return [
        SampleRequest(
            SampleKey(RolloutKey(0, 0, f"case-{number}", 0), turn),
            array("i", prompt),
            Sampling(1.0, tokens),
        )
        for number, prompt in enumerate(prompts)
    ]


def timed(model: Any, batch: list[SampleRequest], turns: TurnCache | None) -> tuple[float, Any]:
    """Return the CPU seconds of one turn, and its samples, which never stop early."""
    began = time.process_time()
    samples = generate(model, batch, frozenset(), turns=turns)
    return time.process_time() - began, samples


def main() -> int:
    """Print the figures; return 1 if they miss the bar."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--cases", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=1500)
    parser.add_argument("--tokens", type=int, default=16)
    given = parser.parse_args()
    policy = TransformersPolicy.load(given.model, device="cpu")
    generator = torch.Generator().manual_seed(0)
    vocabulary = policy.model.config.vocab_size

    def text(count: int) -> list[int]:
        return torch.randint(100, vocabulary, (count,), generator=generator).tolist()

    prompts = [text(given.prompt) for _ in range(given.cases)]
    turns = TurnCache(BUDGET)
    cached, uncached, differing, tokens = [], [], 0, 0
    for turn in range(TURNS):
        batch = requests(prompts, turn, given.tokens)
        seconds, samples = timed(policy.model, batch, turns)
        cached.append(seconds)
        seconds, plain = timed(policy.model, batch, None)
        uncached.append(seconds)
        pairs = list(zip(samples, plain, strict=True))
        differing += sum(
            a != b for one, two in pairs for a, b in zip(one.ids, two.ids, strict=False)
        )
        tokens += sum(len(one.ids) for one in samples)
        prompts = [
            [*prompt, *sample.ids, *text(RESULT)]
            for prompt, sample in zip(prompts, samples, strict=True)
        ]
    speedup = sum(uncached) / sum(cached)
    later = sum(uncached[1:]) / sum(cached[1:])
    is_met = speedup >= BAR or given.tokens > 16
    print(json.dumps({
        "benchmark": "kv_cache_memory", "model": given.model, "cases": given.cases,
        "prompt_tokens": given.prompt, "sampled_per_turn": given.tokens,
        "kept_seconds": [round(each, 2) for each in cached],
        "again_seconds": [round(each, 2) for each in uncached],
        "speedup": round(speedup, 2), "later_speedup": round(later, 2),
        "tokens": tokens, "differing_tokens": differing, "bar": BAR, "ok": is_met,
    }))  # fmt: skip
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
