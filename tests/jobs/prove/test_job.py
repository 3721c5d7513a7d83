"""A proof runs in its opened environment and ends with a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.contracts.proof_specs import ProveSpec
from sparring.environments import Environment
from sparring.jobs.heartbeat import Heartbeat
from sparring.jobs.prove import job
from sparring.jobs.prove.job import prove_environment
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_lines, write_json

SHOP = """
from sparring import Environment


class Shop(Environment):
    class Config(Environment.Config):
        size: int = 2
"""


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "shop.py").write_text(SHOP)
    return RunFolder(tmp_path / "proof-swift-lark")


def proved(folder: RunFolder) -> str:
    target = f"{folder.path.parent / 'shop.py'}:Shop"
    spec = ProveSpec(target=target, run="swift-lark", config={"size": 5})
    folder.create(spec.model_dump(mode="json"))
    return prove_environment(folder, spec, Heartbeat(folder, 0, None))


def test_a_training_without_a_checkpoint_cannot_be_proved(folder: RunFolder) -> None:
    with pytest.raises(InvalidInput, match="run swift-lark has no readable checkpoint"):
        proved(folder)
    assert not folder.report.exists()
    assert list(read_lines(folder.events)) == []


class Proved:
    """Stands for a proof that has been played: only its summary is left."""

    def __init__(self, folder: RunFolder, _: ProveSpec, environment: Environment, __: Any) -> None:
        assert environment.config.size == 5
        self._folder = folder

    def run(self) -> None:
        summary = {
            "environment": "shop", "verdict": "worse", "sentence": "It got worse.", "model": "",
            "training": "swift-lark", "checkpoint": "step-4", "cases": 20, "split": "held-out",
            "rollouts_per_case": 1, "reward": None, "measures": {}, "picked_from": 1,
            "proofs_on_these_cases": 1, "regressed": [], "flips": [], "audit": None,
        }  # fmt: skip
        write_json(self._folder.summary, summary)


def test_a_proof_completes_with_its_report_whatever_its_verdict(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "Proving", Proved)
    assert proved(folder) == "completed"
    assert folder.report_text.read_text().startswith("# shop: worse")
