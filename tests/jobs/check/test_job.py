"""A check plays the cases it is given and ends with a summary and a report."""

from __future__ import annotations

from pathlib import Path

from sparring.contracts.proof_specs import CheckSpec
from sparring.environments import Environment
from sparring.jobs.check.job import check_environment
from sparring.jobs.heartbeat import Heartbeat
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json, read_lines
from sparring.suites import Suite

SEARCHER = """
from agents import Agent, WebSearchTool

from sparring import Environment, Suite


class Searcher(Environment):
    measures = ("exact",)

    def agent(self):
        return Agent(name="searcher", tools=[WebSearchTool()])

    def suite(self):
        raise AssertionError("cases are read by the process that loads them")
"""


class Given:
    """Cases that another process has read."""

    def suite(self, _: Environment) -> Suite:
        rows = [{"input": f"question {n}", "expected": f"answer {n}"} for n in range(300)]
        return Suite.from_records(rows)


def checked(folder: RunFolder, *, can_report: bool = True) -> str:
    file = folder.path.parent / "searcher.py"
    file.write_text(SEARCHER)
    spec = CheckSpec(target=f"{file}:Searcher", environment="searcher")
    folder.create(spec.model_dump(mode="json"))
    if not can_report:
        folder.report.mkdir(parents=True)
    return check_environment(folder, spec, Given(), Heartbeat(folder, 0, None))


def test_an_agent_that_cannot_be_trained_is_audited_and_reported_without_a_model(
    tmp_path: Path,
) -> None:
    folder = RunFolder(tmp_path / "check-searcher")
    assert checked(folder) == "completed"
    summary = read_json(folder.summary)
    assert summary["verdict"] == "broken"
    assert "cannot be trained" in [note["what"] for note in summary["notes"]]
    assert summary["audit"] == []
    assert folder.report_text.read_text().startswith("# searcher: broken")


def test_a_report_that_cannot_be_written_is_a_warning_and_the_check_completes(
    tmp_path: Path,
) -> None:
    folder = RunFolder(tmp_path / "check-searcher")
    assert checked(folder, can_report=False) == "completed"
    assert folder.summary.is_file()
    (warning,) = [each for each in read_lines(folder.events) if each["event"] == "warning"]
    assert warning["message"].startswith("no report was written: ")
