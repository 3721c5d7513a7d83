"""The four environments: found by name, playable, judged with reasons, trainable."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sparring import Split
from sparring.environments import load_environment
from sparring.environments.task import Task
from sparring.sandbox import probe
from sparring.testing import rollout, tool_call

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
COMMAND = [sys.executable, "-c", "from sparring.surfaces.cli.main import run; run()"]
FOUR = ("calculator", "document_qa", "number_game", "terminal")
needs_sandbox = pytest.mark.skipif(not probe().works, reason=probe().why_not)


def load(name: str, **config):
    file = EXAMPLES / name / f"{name}.py"
    found = subprocess.run(
        [*COMMAND, "env", "list", "--json"], cwd=EXAMPLES / name, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    (listed,) = json.loads(found.stdout)["environments"]
    assert listed["name"] == name
    return load_environment(f"{file}:{listed['class_name']}", config)


@pytest.mark.parametrize("name", FOUR)
def test_an_example_loads_and_has_enough_cases_in_every_split(name):
    task = Task.of_environment(load(name))
    for split in Split:
        task.suite.require(split)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(FOUR[0], marks=needs_sandbox),
        *(pytest.param(each, marks=[needs_sandbox, pytest.mark.nightly]) for each in FOUR[1:]),
    ],
)
def test_an_example_plays_on_the_tiny_model_and_every_measure_gives_a_reason(
    name, tmp_path, tiny_folder
):
    done = subprocess.run(
        [*COMMAND, "eval", str(EXAMPLES / name / f"{name}.py"), "--model", str(tiny_folder),
         "--cases", "3", "--max-completion-length", "48", "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["rollouts"] == 3
    assert summary["unscored"] == 0
    for judged in summary["measures"].values():
        assert judged["judged"] == 3
        for reason in judged["reasons_for_failing"]:
            assert reason["reason"]


@pytest.mark.nightly
@needs_sandbox
@pytest.mark.parametrize("name", FOUR)
def test_an_example_trains_for_two_steps(name, tmp_path, tiny_folder):
    done = subprocess.run(
        [*COMMAND, "train", str(EXAMPLES / name / f"{name}.py"), "--model", str(tiny_folder),
         "--max-steps", "2", "--max-completion-length", "32", "--validation-cases", "0",
         "--set", "replacement_groups=0", "--no-prove", "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 2


# ------------------------------------------------------------------ the measures


def test_documents_are_found_and_a_citation_must_have_been_looked_at():
    environment = load("document_qa")
    import document_qa  # loaded by its file

    case = next(
        each
        for each in environment.suite().cases(Split.TRAINING)
        if each.fields["source"] == "larch_halt"
    )
    writer = environment.world(case)
    known = {"expected": case.expected, "fields": case.fields, "world": writer}
    right = f"{case.expected} [larch_halt]"
    assert document_qa.answers(rollout(right, **known)).score == 1
    assert "without having looked" in document_qa.cites_its_source(rollout(right, **known)).reason
    assert "[larch_halt]" in writer.search("Larch Halt")
    assert document_qa.cites_its_source(rollout(right, **known)).score == 1
    assert "cites nothing" in document_qa.cites_its_source(rollout("12", **known)).reason
    assert document_qa.answers(rollout("1" + case.expected, **known)).score == 0
    assert writer.search('"; DROP TABLE part; --') == "nothing found" or writer.search("Larch")
    assert writer.read("../secret") == "there is no document ../secret"


def test_documents_of_ones_own_take_the_place_of_the_stations(tmp_path):
    (tmp_path / "tea.md").write_text("# Tea\n\nTea is steeped for 4 minutes.\n")
    rows = [
        {"question": f"How long is tea steeped? ({n})", "answer": "4", "source": "tea"}
        for n in range(120)
    ]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    environment = load("document_qa", folder=str(tmp_path))
    case = next(iter(environment.suite().cases(Split.TRAINING)))
    assert "4 minutes" in environment.world(case).search("tea steeped")


def test_the_number_game_keeps_its_number_and_counts_guesses():
    environment = load("number_game")
    import number_game

    case = next(iter(environment.suite().cases(Split.TRAINING)))
    game = environment.world(case)
    known = {"fields": case.fields, "world": game}
    assert number_game.found(rollout(**known)).score == 0
    for number in range(1, 5):
        answer = game.guess(number)
        assert answer == ("yes" if number == game.hidden else answer)
    assert number_game.found(rollout(**known)).score == float(game.hidden <= 4)
    assert 0 <= number_game.heeded_hints(rollout(**known)).score <= 1
    assert game.guess(1) in ("no guesses are left", "you have found it already")


@needs_sandbox
def test_the_terminal_is_judged_by_the_files_that_are_left():
    environment = load("terminal")
    import terminal

    case = next(
        each
        for each in environment.suite().cases(Split.TRAINING)
        if each.fields["do"].startswith("Count")
    )
    workspace = environment.world(case)
    known = {"fields": case.fields, "world": workspace}
    assert "there is no" in terminal.did_the_task(rollout("Done.", **known)).reason
    log = next(iter(case.fields["files"]))
    workspace.run_shell(f"wc -l < {log} > {case.fields['file']}")
    assert terminal.did_the_task(rollout(**known)).score == 1
    assert terminal.kept_the_rest(rollout(**known)).score == 1
    workspace.run_shell(f"rm {log}")
    assert terminal.kept_the_rest(rollout(**known)).score == 0
    workspace.after_rollout()


def test_hand_made_rollouts_carry_their_tool_calls():
    made = rollout("x", tool_calls=[tool_call("add", "3", a=1, b=2)])
    assert json.loads(made.tool_calls[0].arguments) == {"a": 1, "b": 2}
