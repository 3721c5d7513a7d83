"""Builds the report of a training run and reads its rollouts for comparisons, from its folder."""

from __future__ import annotations

from typing import Any

from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import ProveSummary, TrainSummary
from sparring.jobs.rollout_reading import read_rollouts
from sparring.reports.document import Document
from sparring.reports.run_reports import training_report
from sparring.reports.training_report import TrainingFacts
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import chosen_of, list_checkpoints
from sparring.run_folder.contents import find_summary
from sparring.run_folder.metrics import read_history_rows


def document(folder: RunFolder) -> Document:
    """Build the report of a training run, which may still be running."""
    return training_report(training_facts(folder))


def training_facts(folder: RunFolder) -> TrainingFacts:
    """Read a training run's settings, results, metrics and best checkpoint."""
    checkpoints = list_checkpoints(folder.checkpoints)
    chosen = chosen_of(checkpoints)
    return TrainingFacts(
        run=folder.id,
        spec=folder.read_spec(),
        summary=find_summary(folder, TrainSummary),
        history=read_history_rows(folder),
        manifest=chosen.manifest if chosen else {},
    )


def comparable(folder: RunFolder, _: dict[str, Any]) -> dict[str, list[Rollout]]:
    """Return the trained model's rollouts in its proof and in the last validation, by split."""
    found: dict[str, list[Rollout]] = {}
    proof = RunFolder(folder.path.parent / f"proof-{folder.id}")
    if summary := find_summary(proof, ProveSummary):
        found[summary.split] = read_rollouts([proof.rollouts_of("trained")])
    validated = read_rollouts(sorted((folder.path / "validation").glob("rank-*")))
    last = max((each.key.step for each in validated), default=0)
    found["validation"] = [each for each in validated if each.key.step == last]
    return found
