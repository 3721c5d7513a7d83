"""Suggests commands to run next, each with its purpose."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.json import SummaryJson
from sparring.contracts.kinds import run_kind
from sparring.contracts.summaries import (
    CheckSummary,
    EvalSummary,
    ProveSummary,
    ShipSummary,
    TrainSummary,
)
from sparring.run_folder.checkpoint_list import MANIFEST, step_of
from sparring.run_folder.files import read_json_or_empty
from sparring.run_folder.layout import short_id

Steps = Mapping[str, str]


def after_look(run: str) -> Steps:
    """Return the steps after any run that plays cases."""
    name = short_id(run)
    return {
        "the report": f"sparring run report {name}",
        "each rollout": f"sparring rollout list {name}",
    }


def after_eval(summary: EvalSummary) -> Steps:
    """Return the steps after an evaluation. A run from Python has no environment to check."""
    environment = summary.environment
    steps = {"can it be learned?": f"sparring check {environment}"} if environment else {}
    return {**after_look(summary.run), **steps}


def after_init(name: str) -> Steps:
    """Return the steps after `sparring init`."""
    return {
        "does it work?": f"sparring env test {name}",
        "can it be learned?": f"sparring check {name}",
        "train and prove": f"sparring train {name}",
    }


def after_env_test(name: str) -> Steps:
    """Return the steps after `sparring env test`."""
    return {"can it be learned?": f"sparring check {name}"}


def after_check(summary: CheckSummary) -> Steps:
    """Return the steps after a check; they include training only if the verdict is learnable."""
    name, given = summary.environment or "ENV", summary.set_by_command
    options = [f"--set {shlex.quote(f'{key}={json.dumps(value)}')}" for key, value in given.items()]
    command = " ".join(["sparring train", name, *options])
    steps = {"train and prove": command} if summary.verdict == "learnable" else {}
    return {**steps, **after_look(summary.run)}


def after_training(summary: TrainSummary) -> Steps:
    """Return the steps after a training run. A run from Python has no environment to chat with."""
    run, environment = short_id(summary.run), summary.environment
    agent = "" if environment else ", agent=…"
    more = max(2 * summary.planned_steps, 1)
    steps = {"talk to it": f"sparring chat {run}"} if environment else {}
    if environment and not summary.has_proof:
        steps["is it better?"] = f"sparring prove {run}"
    return {
        **steps,
        "use it in Python": f'sparring.TrainResult.load("{run}"{agent}).generate("…")',
        "see what it did": f"sparring rollout list {run}",
        "the report": f"sparring run report {run}",
        **(
            {"train again, longer": f"sparring run clone {run} --set max_steps={more}"}
            if environment
            else {}
        ),
    }


def after_shipment(summary: ShipSummary) -> Steps:
    """Return the steps after a shipment; a trial and a refused one have written no folder."""
    report = {"the report": f"sparring run report {short_id(summary.run)}"}
    if summary.to:
        folder = shlex.quote(summary.to)
        return {
            "how to run it": f"cat {folder}/how_to_run.md",
            "what is proved": f"cat {folder}/proof_card.md",
            **report,
        }
    if summary.is_trial and summary.is_fine:
        return {"ship it": f"sparring ship {short_id(summary.training)} --to FOLDER", **report}
    return report


def _failures(summary: ProveSummary) -> str:
    """Return what selects the trained model's rollouts. For a proof on held-out cases, these are
    the validation rollouts of the same checkpoint, or nothing if it was not validated: an
    environment that is changed after its held-out rollouts were read cannot be proven on them."""
    if summary.split != Split.HELD_OUT.value:
        return f"{short_id(summary.run)} --player trained"
    checkpoint = Path(summary.checkpoint)
    manifest = read_json_or_empty(checkpoint / MANIFEST)  # empty if the checkpoint was removed
    if manifest and manifest.get("score") is None:
        return ""
    return f"{short_id(summary.training)} --log validation --step {step_of(checkpoint)}"


def after_proof(summary: ProveSummary) -> Steps:
    """Return the steps after a proof."""
    proof, run = short_id(summary.run), short_id(summary.training)
    steps = {"ship it": f"sparring ship {run}"} if summary.verdict == "better" else {}
    steps |= {
        "talk to it": f"sparring chat {run}",
        "use it in Python": f'sparring.TrainResult.load("{run}").generate("…")',
        "before and after": f"sparring run report {proof}",
    }
    if failures := _failures(summary):
        steps["why it fails"] = f"sparring rollout list {failures} --max-reward 0.5"
    if not summary.is_good:
        steps["train again, longer"] = f"sparring run clone {run} --set max_steps=…"
    return steps


_AFTER: Mapping[str, Callable[[Any], Steps]] = {
    "train": after_training,
    "eval": after_eval,
    "check": after_check,
    "audit": lambda summary: after_look(summary.run),
    "prove": after_proof,
    "ship": after_shipment,
}


def after_run(kind: str, summary: SummaryJson) -> Steps:
    """Return the steps after a run of any kind, for its JSON answer."""
    entry = run_kind(kind, "the run")
    return _AFTER[entry.name](entry.summary.model_validate(summary))
