"""A training of the bell that has been proved, without training: its base is the random tiny model,
and its checkpoint the same model after the example's demonstrations."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from sparring.contracts.kinds import Form, ShipSpec
from sparring.contracts.specs import PolicySpec
from sparring.contracts.training import TrainSpec
from sparring.learning.checkpoints import Checkpoints, Identity
from sparring.operations.proving import proof_of
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_state
from sparring.run_folder.files import read_json, write_json
from sparring.runs.lifecycle import RunState
from tests.jobs.run_here import run_here

BELL = Path(__file__).resolve().parents[3] / "examples" / "bell"
RUN, PROOF = "bell-20261117-010101-aaaa", "proof-bell-20261117-010101-aaaa"
CASES = 24


def make_project(place: Path, tiny: Path, warm: Path, *, shows: str = "") -> Path:
    """A project with a training of the bell and its proof; returns the folder of its runs. `shows`
    is the code of its worked examples."""
    shutil.copytree(BELL, place, dirs_exist_ok=True)
    if shows:
        code = (
            (place / "bell.py")
            .read_text()
            .replace("import Environment", "import worked_example, call, Environment")
        )
        code = code.replace(
            "    measures = (got_in,)\n", f"    measures = (got_in,)\n    examples = {shows}\n"
        )
        (place / "bell.py").write_text(code)
    runs = place / "runs"
    settings = {"max_completion_length": 128, "max_turns": 2, "seed": 3}
    spec = TrainSpec(
        target=f"{place / 'bell.py'}:Bell",
        environment="bell",
        policy=PolicySpec(model=str(tiny)),
        settings=settings,
    )
    training = RunFolder(runs / RUN)
    training.create(spec.model_dump(mode="json"))
    for state in (RunState.QUEUED, RunState.STARTING, RunState.RUNNING, RunState.COMPLETED):
        append_state(training, state, author="owner")
    seal_checkpoint(training, warm)
    prove_spec = proof_of(RUN, spec).model_copy(update={"cases": CASES, "rollouts": 1})
    proof = RunFolder(runs / PROOF)
    proof.create(prove_spec.model_dump(mode="json"))
    run_here(proof)
    append_state(proof, RunState.COMPLETED, author="supervisor")
    return runs


def seal_checkpoint(training: RunFolder, model: Path, step: int = 2) -> Path:
    identity = Identity(suite="s" * 64, code="c" * 64, template="t" * 64, world_size=1)
    checkpoints = Checkpoints(training.checkpoints, identity, boundary=1, kept=2)
    staging = checkpoints.staging(step)
    shutil.copytree(model, staging, ignore=shutil.ignore_patterns("manifest.json"))
    for name in ("trainer_state.json", "optimizer.pt", "scheduler.pt"):
        if not (staging / name).exists():
            (staging / name).write_bytes(b"{}")
    return checkpoints.seal(staging, step, score=1.0)


def ship_spec(runs: Path, to: Path, **changes: Any) -> ShipSpec:
    training = TrainSpec.model_validate(RunFolder(runs / RUN).read_spec())
    shared = proof_of(RUN, training)
    given: dict[str, Any] = {
        "target": training.target,
        "environment": "bell",
        "policy": training.policy,
        "base": training.policy,
        "play": shared.play,
        "run": RUN,
        "proof": PROOF,
        "to": str(to),
        "forms": (Form.MERGED, Form.GGUF),
        "validation_cases": 6,
        "cases": CASES,
        "name": "porter",
        **changes,
    }
    return ShipSpec(**given)


def new_shipment(runs: Path, name: str, spec: ShipSpec) -> RunFolder:
    folder = RunFolder(runs / f"ship-bell-20261117-020202-{name}")
    folder.create(spec.model_dump(mode="json"))
    return folder


def shipped(folder: RunFolder) -> dict[str, Any]:
    """Runs one attempt in this process, and reads the summary that it wrote."""
    run_here(folder)
    return read_json(folder.summary)


def rewrite(path: Path, **changes: Any) -> None:
    write_json(path, {**read_json(path), **changes})
