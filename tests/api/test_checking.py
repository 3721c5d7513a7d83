"""`check()` and `audit()` in Python: as their commands, on an environment."""

from __future__ import annotations

import asyncio
from typing import Any

import sparring
from sparring import audit, check
from sparring.contracts.summaries import CheckVerdict
from tests.api.small_talk import SmallTalk, shown_by


def test_a_check_states_verdict_reason_and_estimate(tiny_folder, tmp_path):
    result = check(
        SmallTalk(), model=str(tiny_folder), cases=2, rollouts=8, dry_steps=1, max_steps=2,
        runs=tmp_path, show_progress=False,
    )  # fmt: skip
    assert result.verdict in CheckVerdict
    assert result.why
    assert result.estimate is not None
    assert result.estimate.steps == 2
    assert result.run.startswith("check-small-talk-")
    assert len(shown_by(result).findall(".//tr")) == 3  # a measure, training, proof


def test_an_audit_finds_a_measure_that_passes_everything(tmp_path):
    @sparring.measure
    def anything(rollout: Any) -> Any:
        return sparring.passed("fine")

    result = audit(SmallTalk(), measures=[anything], runs=tmp_path, show_progress=False)
    assert result.verdict == "faulty"
    assert "anything" in result.why
    assert shown_by(result).find(".//tr/th").text == "anything"
    assert result.run.startswith("audit-small-talk-")


def test_verbs_work_where_an_event_loop_runs_as_in_a_notebook(tmp_path):
    async def cell() -> Any:
        return audit(SmallTalk(), cases=2, runs=tmp_path, show_progress=False)

    assert asyncio.run(cell()).summary.cases == 2
