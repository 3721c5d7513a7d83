"""Checks the calibration of proofs on simulated suites whose true difference is known.

    python benchmarks/proof_calibration.py [--quick]

Each case has a pass probability with the base and one with the trained model, both probit-normal
over cases, so that the rollouts of a case are correlated and the true difference is known exactly.
Suites have 30 to 2,000 cases, 1 to 16 rollouts per case, high or low pass probabilities, and
probabilities that are nearly equal or spread widely over cases.

Bars: with no true difference, the verdict is "better" in at most 3.5 % of suites, also if the best
of ten checkpoints was picked on the same cases; the 95 % interval covers the true difference in at
least 93 % everywhere, and in at most 97 % where ten or more cases differ on average (except for a
picked checkpoint: picking biases its estimate upwards, so that its interval misses on one side
only); the verdict is "better" in at least 80 % where the true difference is the smallest effect
that the proof states. `--quick` simulates fewer kinds of suites; both forms simulate 2,000 of each
kind without a difference.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from multiprocessing import Pool
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sparring.contracts.summaries import Standing
from sparring.proofs.paired import paired_difference

FALSE_ALARMS, LEAST, MOST, POWER = 0.035, 0.93, 0.97, 0.80
TEN = 10


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of suite. `share` is the mean pass probability of the base, `spread` the standard
    deviation of its probit over cases, `alike` the correlation of a case's two probits, and
    `picked` the number of checkpoints from which the best is picked."""

    cases: int
    rollouts: int
    share: float
    spread: float
    alike: float
    effect: float = 0.0
    picked: int = 1

    def describe(self) -> str:
        picked = f", best of {self.picked}" if self.picked > 1 else ""
        return (
            f"{self.cases} cases × {self.rollouts}, {self.share:.0%} ± {self.spread:g}, "
            f"alike {self.alike:g}, effect {self.effect:.3f}{picked}"
        )


def suite(kind: Kind, random: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the mean reward per case of the base, and of the (picked) trained model."""
    scale = np.sqrt(1 + kind.spread**2)
    before, after = (
        scale * stats.norm.ppf(share) for share in (kind.share, kind.share + kind.effect)
    )
    common = random.standard_normal(kind.cases)
    base = random.binomial(kind.rollouts, stats.norm.cdf(before + kind.spread * common))
    candidates = []
    for _ in range(kind.picked):
        own = random.standard_normal(kind.cases)
        place = kind.alike * common + np.sqrt(1 - kind.alike**2) * own
        chance = stats.norm.cdf(after + kind.spread * place)
        candidates.append(random.binomial(kind.rollouts, chance))
    best = max(candidates, key=lambda each: each.sum())
    return base / kind.rollouts, best / kind.rollouts


def simulate(task: tuple[Kind, int]) -> dict[str, float]:
    kind, suites = task
    random = np.random.default_rng([kind.cases, kind.rollouts, int(1e4 * kind.share), kind.picked])
    covered = better = 0
    differing, effects = [], []
    for number in range(suites):
        base, trained = suite(kind, random)
        names = [str(case) for case in range(kind.cases)]
        shown = paired_difference(
            dict(zip(names, base, strict=True)),
            dict(zip(names, trained, strict=True)),
            chances=kind.picked,
            seed=number,
        )
        assert shown is not None
        covered += shown.low <= kind.effect <= shown.high
        better += shown.standing is Standing.BETTER
        differing.append(shown.differing)
        effects.append(shown.smallest_effect)
    return {
        "covered": covered / suites,
        "better": better / suites,
        "differing": float(np.mean(differing)),
        "smallest_effect": float(np.median(effects)),
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--suites", type=int, default=2000)
    options.add_argument("--processes", type=int, default=2)
    given = options.parse_args()
    started = time.monotonic()
    kinds = _kinds(given.quick)
    with Pool(given.processes) as pool:
        found = pool.map(simulate, [(kind, _suites(kind, given.suites)) for kind in kinds], 1)
        worst = _judge(kinds, found)
        worst["power"] = _power(pool, kinds, found, given.suites // (4 if given.quick else 2))
    shown = {
        "benchmark": "proof_calibration",
        "bars": {"better": FALSE_ALARMS, "covered": [LEAST, MOST], "power": POWER},
        "kinds": len(kinds),
        "suites_each": given.suites,
        **worst,
        "seconds": round(time.monotonic() - started),
    }
    shown["ok"] = (
        worst["false_alarms"]["share"] <= FALSE_ALARMS
        and worst["false_alarms_picked"]["share"] <= FALSE_ALARMS
        and worst["least_covered"]["share"] >= LEAST
        and worst["most_covered"]["share"] <= MOST
        and worst["power"]["share"] >= POWER
    )
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


def _suites(kind: Kind, most: int) -> int:
    """Return how many suites to simulate: more without an effect, to tell 2.5 % from 3.5 %."""
    return most if kind.effect == 0 else most // 2


def _judge(kinds: list[Kind], found: list[dict[str, float]]) -> dict[str, Any]:
    """Print all figures; return the worst of each, with its kind of suite."""
    rows = list(zip(kinds, found, strict=True))
    for kind, figures in rows:
        print(f"{kind.describe()}: {figures}", flush=True)

    def worst(name: str, picked: Any, key: Any) -> dict[str, Any]:
        kind, figures = key((row for row in rows if picked(*row)), key=lambda row: row[1][name])
        return {"share": figures[name], "kind": kind.describe()}

    def no_effect(kind: Kind, _: Any) -> bool:
        return kind.effect == 0 and kind.picked == 1

    def dense(kind: Kind, figures: dict[str, float]) -> bool:
        return figures["differing"] >= TEN and kind.picked == 1

    return {
        "false_alarms": worst("better", no_effect, max),
        "false_alarms_picked": worst("better", lambda kind, _: kind.picked > 1, max),
        "least_covered": worst("covered", lambda *_: True, min),
        "most_covered": worst("covered", dense, max),
    }


def _power(
    pool: Any, kinds: list[Kind], found: list[dict[str, float]], suites: int
) -> dict[str, Any]:
    """Return the lowest power. Simulates the kinds without an effect again, with the smallest
    effect that they state, unless that raises the pass probability to 99.9 %."""
    tasks = []
    for kind, figures in zip(kinds, found, strict=True):
        effect = round(figures["smallest_effect"], 4)
        if kind.effect == 0 and kind.picked == 1 and kind.share + effect < 0.999:
            tasks.append(
                Kind(kind.cases, kind.rollouts, kind.share, kind.spread, kind.alike, effect)
            )
    powers = pool.map(simulate, [(task, suites) for task in tasks], chunksize=1)
    for task, figures in zip(tasks, powers, strict=True):
        print(f"power, {task.describe()}: {figures['better']:.3f}", flush=True)
    least = min(range(len(tasks)), key=lambda number: powers[number]["better"])
    return {"share": powers[least]["better"], "kind": tasks[least].describe()}


def _kinds(is_quick: bool) -> list[Kind]:
    if is_quick:
        return [
            Kind(30, 1, 0.5, 1.0, 1.0),
            Kind(30, 4, 0.3, 2.0, 0.8),
            Kind(200, 4, 0.5, 1.0, 0.8),
            Kind(200, 1, 0.5, 1.0, 0.8, picked=10),
            Kind(30, 16, 0.97, 1.0, 1.0, effect=0.02),
            Kind(100, 1, 0.8, 1.0, 1.0, effect=0.1),
        ]
    shapes = (
        (0.5, 0.01, 1.0),
        (0.5, 1.0, 0.8),
        (0.3, 2.0, 1.0),
        (0.05, 2.0, 0.8),
        (0.9, 1.0, 1.0),
        (0.97, 1.0, 1.0),
    )
    sizes = [(cases, rollouts) for cases in (30, 100, 2000) for rollouts in (1, 4, 16)]
    kinds = [Kind(*size, *shape) for size in sizes for shape in shapes]
    kinds += [
        Kind(*size, *shape, effect=0.02 if shape[0] > 0.95 else 0.09)
        for size in sizes
        for shape in shapes
        if size[0] < 2000
    ]
    picked = [
        Kind(cases, rollouts, 0.5, 1.0, alike, picked=10)
        for cases in (30, 200, 2000)
        for rollouts, alike in ((1, 0.8), (4, 1.0))
    ]
    return kinds + picked


if __name__ == "__main__":
    sys.exit(main())
