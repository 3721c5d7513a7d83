"""Artefacts and checkpoint play the same cases, and their rewards are compared."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sparring.contracts.cases import Case, Split, digest_of
from sparring.contracts.errors import RunChanged
from sparring.contracts.rollouts import Rollout
from sparring.jobs.ship.context import ShipContext
from sparring.jobs.ship.playing import (
    CHECKPOINT,
    HELD_OUT,
    HELD_OUT_CHECKPOINT,
    HELD_OUT_GREEDY,
    trained_policy,
)
from sparring.proofs.equivalence import Equivalence, compare, improvement
from sparring.run_folder.held_out_ledger import record_look
from sparring.shipping.artefacts import Artefact


async def play_checkpoint(
    shipping: ShipContext, cases: Sequence[Case], log_name: str = CHECKPOINT
) -> list[Rollout]:
    """Return the greedy rollouts of the checkpoint; play them unless an earlier attempt did."""
    played = shipping.player.rollouts_of(log_name)
    if len(played) < len(cases):
        policy = trained_policy(shipping.source)
        played = await shipping.player.play(log_name, policy, cases, rollouts=1, is_greedy=True)
    return played


async def compare_on_validation(
    shipping: ShipContext, artefacts: Sequence[Artefact], cases: Sequence[Case]
) -> None:
    """Play the validation cases with every artefact, and compare each with the checkpoint."""
    for artefact in artefacts:
        log_name = artefact.name.replace(" ", "-")
        started = time.monotonic()
        with shipping.served(artefact) as policy:
            played = await shipping.player.play(log_name, policy, cases, rollouts=1, is_greedy=True)
        row = validation_row(shipping, played, time.monotonic() - started)
        shipping.rows[artefact.name]["validation"] = row


def validation_row(
    shipping: ShipContext, played: Sequence[Rollout], seconds: float
) -> dict[str, Any]:
    """Compare rollouts on validation cases with those of the checkpoint; return a row."""
    checkpoint = shipping.player.rollouts_of(CHECKPOINT)
    found = compare(checkpoint, played, margin=shipping.spec.margin)
    row = _equivalence_row(found) | {"mean_reward": _mean(played)}
    return row | {"seconds": round(seconds, 1)}


async def play_held_out(shipping: ShipContext, chosen: Artefact) -> dict[str, Any] | None:
    """Play the held-out cases of the proof with the chosen artefact: greedily, to compare it with
    the checkpoint, and sampled as in the proof, to compare it with the base. The ledger counts this
    as one look. Return None without a proof, or if the spec's `cases` is 0."""
    proof, spec = shipping.proof_summary(), shipping.spec
    if proof is None or spec.cases == 0:
        return None
    suite = shipping.task.suite
    digest = digest_of(suite.cases(Split.HELD_OUT))
    if digest != proof.get("cases_digest"):
        raise RunChanged(
            f"the held-out cases are no longer those of {spec.proof}; prove the training again, "
            "then ship it"
        )
    most = min(spec.cases or proof["cases"], proof["cases"])
    cases = list(suite.cases(Split.HELD_OUT, most))
    draw = f"{spec.play.seed}/{most}x{spec.rollouts}"
    name = f"{spec.run}/{shipping.checkpoint.path.name}"
    looks = record_look(shipping.folder, digest, f"{name}#{draw}#{chosen.name}")
    checkpoint = await play_checkpoint(shipping, cases, HELD_OUT_CHECKPOINT)
    player = shipping.player
    with shipping.served(chosen) as policy:
        greedy = await player.play(HELD_OUT_GREEDY, policy, cases, rollouts=1, is_greedy=True)
        sampled = await player.play(
            HELD_OUT, policy, cases, rollouts=spec.rollouts, is_greedy=False
        )
    ids = {case.id for case in cases}
    base = [each for each in shipping.proof_rollouts("base") if each.case.id in ids]
    found = compare(checkpoint, greedy, margin=spec.margin)
    gain = improvement(base, sampled, chances=looks)
    row = _equivalence_row(found) | {"artefact": chosen.name, "looks": looks}
    row["base"] = asdict(gain) if gain else None
    row["is_improved"] = gain is not None and gain.standing.value == "better"
    row["against_base"] = _against_base(row)
    return row


def _equivalence_row(found: Equivalence) -> dict[str, Any]:
    return {**asdict(found), "likeness": found.likeness.value}


def _mean(rollouts: Sequence[Rollout]) -> float | None:
    rewards = [each.reward for each in rollouts if each.reward is not None]
    return sum(rewards) / len(rewards) if rewards else None


def _against_base(row: dict[str, Any]) -> str:
    if row["base"] is None:
        return "too few cases could be scored on both sides"
    base = row["base"]
    word = "better" if row["is_improved"] else "no improvement is shown"
    return (
        f"{word}: reward {base['before']:.3f} → {base['after']:.3f} "
        f"({base['low']:+.3f} … {base['high']:+.3f}) on {base['cases']} cases"
    )
