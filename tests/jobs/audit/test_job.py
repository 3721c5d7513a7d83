"""An audit needs no model: it judges null players and writes what it found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.kinds import AuditSpec
from sparring.contracts.summaries import Fault
from sparring.proofs.audit import ADVICE
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json
from tests.jobs.run_here import run_here

SHOP = """
from agents import Agent

from sparring import Environment, Suite, failed, measure, passed


@measure
def knows(rollout):
    return passed("right") if rollout.answer == rollout.expected else failed("wrong")


@measure
def short(rollout):
    return passed("short") if len(rollout.answer) < 6 else failed("long")


class Sound(Environment):
    measures = (knows,)

    def agent(self):
        return Agent(name="talker")

    def suite(self):
        return Suite.from_records(
            [{"input": f"question {n}", "expected": f"answer {n}"} for n in range(60)]
        )


class Exploitable(Sound):
    measures = (short,)


class NoWorld(Sound):
    def world(self, case):
        raise OSError("the world is not there")
"""


def audited(place: Path, name: str) -> RunFolder:
    file = place / "shop.py"
    file.write_text(SHOP)
    spec = AuditSpec(target=f"{file}:{name}", environment=name, cases=4)
    folder = RunFolder(place / name)
    folder.create(spec.model_dump(mode="json"))
    run_here(folder)
    return folder


def test_a_fault_is_in_the_summary_with_advice(tmp_path: Path) -> None:
    folder = audited(tmp_path, "Exploitable")
    summary: dict[str, Any] = read_json(folder.summary)
    assert (summary["kind"], summary["run"]) == ("audit", "Exploitable")
    assert summary["measures"] == {"short": 1.0}
    found = {each["fault"]: each for each in summary["audit"]}
    advice = found[Fault.PASSED_BY_NOTHING.value]["advice"]
    assert advice == ADVICE[Fault.PASSED_BY_NOTHING]


def test_nothing_is_found_in_sound_measures_and_every_judgement_is_counted(tmp_path: Path) -> None:
    folder = audited(tmp_path, "Sound")
    summary = read_json(folder.summary)
    assert (summary["audit"], summary["left_out"]) == ([], [])
    answers = 4 * 9  # cases × null players; the noise player answers with single words only
    assert summary["judgements"] == 3 * (answers - 4)


def test_an_audit_without_any_world_fails_and_writes_no_summary(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="the world is not there"):
        audited(tmp_path, "NoWorld")
    assert not (tmp_path / "NoWorld" / "report" / "summary.json").exists()
