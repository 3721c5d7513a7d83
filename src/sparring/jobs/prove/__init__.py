"""Runs of kind prove: compare the base and the trained model on the same held-out cases."""

from __future__ import annotations

from sparring.contracts.proof_specs import ProveSpec
from sparring.jobs.attempt import Attempt


def run(attempt: Attempt) -> str:
    """Run a proof. This process may read held-out cases, because it does not train."""
    from sparring.jobs.prove.job import prove_environment

    return prove_environment(
        attempt.folder, ProveSpec.model_validate(attempt.spec), attempt.heartbeat
    )
