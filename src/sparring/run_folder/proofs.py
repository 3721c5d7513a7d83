"""Finds the proofs of a training among the runs beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sparring.contracts.cases import Split
from sparring.contracts.errors import NotProved
from sparring.contracts.summaries import ProveSummary
from sparring.run_folder.contents import find_summary
from sparring.run_folder.files import read_json_or_empty
from sparring.run_folder.layout import RunFolder


def proof_to_ship(training: RunFolder, checkpoint: str, *, is_needed: bool) -> ProveSummary | None:
    """Return the newest proof with the verdict "better": of the checkpoint, or of any checkpoint
    if `checkpoint` is empty. Without one, raise NotProved if it `is_needed`; otherwise return the
    newest proof, or None."""
    found = [
        proof for proof in _proofs_of(training) if checkpoint in ("", Path(proof.checkpoint).name)
    ]
    better = next((proof for proof in found if proof.has_passed), None)
    newest = next(iter(found), None)
    if better or not is_needed:
        return better or newest
    if newest:
        raise NotProved(
            f"no checkpoint of run {training.id} is proved: the verdict of {newest.run} on "
            f'{Path(newest.checkpoint).name} is "{newest.verdict}". Train longer, '
            f"prove more cases with `sparring prove {training.id}`, or ship it with --unproven, "
            "which the model cards state"
        )
    raise NotProved(
        f"the {checkpoint or 'best'} checkpoint of run {training.id} has no proof; run "
        f"`sparring prove {training.id}` first, or ship it with --unproven, which the model cards "
        "state"
    )


def _proofs_of(training: RunFolder) -> Iterator[ProveSummary]:
    """Yield the proofs of a training on held-out cases, newest first."""
    for spec in sorted(training.path.parent.glob("*/spec.json"), reverse=True):
        content = read_json_or_empty(spec)
        if content.get("kind") != "prove" or content.get("run") != training.id:
            continue
        proof = find_summary(RunFolder(spec.parent), ProveSummary)
        if proof is not None and proof.split == Split.HELD_OUT.value:
            yield proof
