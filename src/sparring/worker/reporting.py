"""`python -m sparring.worker.reporting RUN_FOLDER`: write a run's report, from its folder alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparring.contracts.errors import InvalidInput, SparringError
from sparring.contracts.rollouts import Rollout
from sparring.proofs.document import Document
from sparring.proofs.report import (
    audit_report,
    check_report,
    eval_report,
    proof_report,
    training_report,
)
from sparring.proofs.training_report import TrainingTold
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import best_of, list_checkpoints
from sparring.run_folder.files import read_json, write_text
from sparring.run_folder.metrics import history_of
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import RolloutLog

_FLIPS = 12


def write_report(folder: RunFolder) -> Path:
    """HTML and Markdown, beside the run's summary."""
    document = document_of(folder)
    write_text(folder.report, document.html())
    write_text(folder.report_text, document.markdown())
    return folder.report


def document_of(folder: RunFolder) -> Document:
    kind = str(folder.read_spec().get("kind"))
    if kind == "train":
        return training_report(training_told(folder))
    if not folder.summary.is_file():
        raise InvalidInput(f"run {folder.id} has nothing to report yet: it has no results")
    summary = read_json(folder.summary)
    if kind == "prove":
        return _of_proof(folder, summary)
    made = {"check": check_report, "audit": audit_report, "eval": eval_report}.get(kind)
    if made is None:
        raise InvalidInput(f"there is no report of a run of kind {kind}")
    return made(summary)


def _of_proof(folder: RunFolder, summary: Mapping[str, Any]) -> Document:
    training = RunFolder(folder.path.parent / summary["training"])
    told = training_told(training) if training.spec.is_file() else None
    pairs = [
        (flip, find(folder, "base", flip["base"]), find(folder, "trained", flip["trained"]))
        for flip in summary["flips"][:_FLIPS]
    ]
    return proof_report(summary, pairs, told)


def training_told(folder: RunFolder) -> TrainingTold:
    there = list_checkpoints(folder.checkpoints)
    chosen = best_of(there) or (there[-1] if there else None)
    return TrainingTold(
        run=folder.id,
        spec=folder.read_spec(),
        summary=read_json(folder.summary) if folder.summary.is_file() else {},
        history=history_of(folder),
        manifest=chosen.manifest if chosen else {},
    )


def find(folder: RunFolder, player: str, rollout: str) -> Rollout:
    return from_record(RolloutLog(folder.rollouts_of(player)).find(rollout))


if __name__ == "__main__":
    try:
        print(write_report(RunFolder(Path(sys.argv[1]))))
    except SparringError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
