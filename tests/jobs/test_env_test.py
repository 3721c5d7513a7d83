"""A trial of an environment says what works, what does not, and what its suite is too small for."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.specs import PlaySettings
from sparring.jobs.env_test import try_environment
from sparring.jobs.tool_trial import Check

TALK = """
from agents import Agent, function_tool

from sparring import Environment, Suite, failed, measure, passed


@function_tool
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b


@measure
def short(rollout):
    return passed("short") if 0 < len(rollout.answer) < 9 else failed("long or empty")


class Talk(Environment):
    measures = (short,)

    def agent(self):
        return Agent(name="talker", tools=[add])

    def suite(self):
        return Suite.from_records([{"input": f"question {n}"} for n in range(COUNT)])
"""


def tried(folder: Path, tiny_folder: Path, count: int, text: str = TALK) -> dict[str, Check]:
    file = folder / "talk.py"
    file.write_text(text.replace("COUNT", str(count)))
    play = PlaySettings(max_completion_length=64).model_dump(mode="json")
    request = {
        "target": f"{file}:Talk", "config": {}, "model": str(tiny_folder), "cases": 1, "play": play,
    }  # fmt: skip
    return {check.what: check for check in try_environment(request)}


def test_all_is_well_with_enough_cases(tmp_path: Path, tiny_folder: Path) -> None:
    checks = tried(tmp_path, tiny_folder, 60)
    assert [check for check in checks.values() if not check.ok] == []
    assert checks["cases"] == Check("cases", True, "20 training, 20 validation, 20 held-out")
    assert checks["tools"].detail == "add"


def test_a_worked_example_that_answers_a_held_out_case_fails(
    tmp_path: Path, tiny_folder: Path
) -> None:
    example = "examples = (worked_example('question 7', answer='seven'),)"
    text = TALK.replace("measures = (short,)", f"measures = (short,)\n    {example}")
    text = text.replace("measure, passed", "measure, passed, worked_example")
    for where, ok in (("held-out", False), ("training", True)):
        records = f'[{{"input": f"question {{n}}", "split": "{where}" if n == 7 else '
        records += '("training", "validation", "held-out")[n % 3]} for n in range(COUNT)]'
        suite = text.replace('[{"input": f"question {n}"} for n in range(COUNT)]', records)
        checks = tried(tmp_path, tiny_folder, 90, suite)
        assert checks["worked examples"].ok == ok
        assert f"(1 {where})" in checks["worked examples"].detail


@pytest.mark.parametrize(
    ("count", "lacking"),
    [(25, "add 15 more to train and 35 more to prove"), (45, "add 15 more to prove")],
)
def test_a_small_suite_passes_with_a_warning_of_what_it_is_too_small_for(
    count: int, lacking: str, tmp_path: Path, tiny_folder: Path
) -> None:
    checks = tried(tmp_path, tiny_folder, count)
    assert [check for check in checks.values() if not check.ok] == []
    assert checks["cases"].is_doubtful
    assert checks["cases"].detail.endswith(lacking)


def test_a_suite_too_small_to_evaluate_ends_the_trial(tmp_path: Path, tiny_folder: Path) -> None:
    checks = tried(tmp_path, tiny_folder, 5)
    assert not checks["cases"].ok
    assert "add 35 cases" in checks["splits"].detail
    assert "measures" not in checks


def test_contradictory_cases_fail_the_trial(tmp_path: Path, tiny_folder: Path) -> None:
    twice = TALK.replace('{"input": f"question {n}"}', '{"input": f"q {n % 30}", "expected": n}')
    checks = tried(tmp_path, tiny_folder, 60, twice)
    assert not checks["expected outcomes"].ok
    assert checks["expected outcomes"].detail.startswith("60 cases contradict each other: 30 inp")
    worldly = twice + "\n    def world(self, case):\n        return object()\n"
    assert "expected outcomes" not in tried(tmp_path, tiny_folder, 60, worldly)


def test_equal_cases_fail_the_trial(tmp_path: Path, tiny_folder: Path) -> None:
    equal = TALK.replace('f"question {n}"', '"the same"')
    checks = tried(tmp_path, tiny_folder, 80, equal)
    assert not checks["splits"].ok
    assert checks["splits"].detail.startswith("all 80 records have the same input, and records")


def test_a_measure_that_returns_nothing_is_named_with_its_line(
    tmp_path: Path, tiny_folder: Path
) -> None:
    silence = TALK.replace("    return passed", "    passed")
    checks = tried(tmp_path, tiny_folder, 60, silence)
    assert "short (talk.py:13) returned None" in checks["judging an empty answer"].detail


def test_an_error_of_the_environment_is_named_with_its_line(
    tmp_path: Path, tiny_folder: Path
) -> None:
    broken = TALK.replace("return Suite", "return nothing or Suite")
    checks = tried(tmp_path, tiny_folder, 60, broken)
    assert "talk.py:25" in checks["agent and suite"].detail
    assert not checks["agent and suite"].ok


def test_a_database_that_tools_cannot_use_fails_the_trial(
    tmp_path: Path, tiny_folder: Path
) -> None:
    """Worlds are made on another thread than tools run on."""
    sqlite = TALK.replace("from agents", "import sqlite3\n\nfrom agents", 1)
    sqlite = sqlite.replace("passed\n", "passed, tool\n", 1)
    sqlite += """
    def world(self, case):
        return Shelf()


class Shelf:
    def __init__(self):
        self.data = sqlite3.connect(":memory:")

    @tool
    def look_up(self, name: str) -> str:
        "Looks up a name."
        return str(self.data.execute("select 1").fetchone())
"""
    checks = tried(tmp_path, tiny_folder, 60, sqlite)
    (called,) = [check for what, check in checks.items() if what.startswith("calls look_up")]
    assert not called.ok
    assert "check_same_thread=False" in called.detail
    working = sqlite.replace('":memory:"', '":memory:", check_same_thread=False')
    assert all(check.ok for check in tried(tmp_path, tiny_folder, 60, working).values())


def test_a_tool_whose_error_ends_the_rollout_has_failed(tmp_path: Path, tiny_folder: Path) -> None:
    """The SDK passes the error on if the tool has no function for errors."""
    fragile = TALK.replace("@function_tool", "@function_tool(failure_error_function=None)")
    fragile = fragile.replace("return a + b", "raise ValueError('no such sum')")
    fragile += """

@function_tool
def never() -> str:
    "Is not reached."
    return ""
"""
    fragile = fragile.replace("tools=[add]", "tools=[add, never]")
    checks = tried(tmp_path, tiny_folder, 60, fragile)
    (called,) = [check for what, check in checks.items() if what.startswith("calls add")]
    assert called.is_doubtful
    assert "no such sum" in called.detail
    assert "never" in checks["calls the other tools"].detail


def test_a_family_of_its_own_is_not_that_of_the_test_model(tmp_path: Path) -> None:
    family = 'family = replace(family_named("qwen3"), name="own", end_of_turn="<|end|>")'
    text = TALK.replace("    measures = (short,)", f"    measures = (short,)\n    {family}")
    imports = "from dataclasses import replace\n"
    imports += "from sparring.policies.families import family_named\n"
    checks = tried(tmp_path, Path("tiny"), 60, imports + text)
    assert [check for check in checks.values() if not check.ok] == []
