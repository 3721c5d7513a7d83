"""A new environment is a working one, and writing it overwrites nothing."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput
from sparring.environments.loading import load_environment
from sparring.projects import find_project
from sparring.projects.templates import STARTING_POINTS, write_environment
from sparring.settings.layers import DEFAULTS, Layer, check_types, defaults, merge


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("start", STARTING_POINTS)
def test_a_written_template_is_an_environment_of_the_given_name(tmp_path: Path, start: str) -> None:
    written = write_environment(tmp_path, "word_quiz", start)
    found = find_project(tmp_path).find("word_quiz")
    assert (found.class_name, Path(found.file)) == ("WordQuiz", tmp_path / "word_quiz.py")
    assert found.description
    assert all(path.is_file() for path in written)
    for text in contents(tmp_path).values():
        assert "my_agent" not in text
        assert "MyAgent" not in text


@pytest.mark.parametrize("start", STARTING_POINTS)
def test_the_test_of_an_environment_imports_what_the_environment_defines(
    tmp_path: Path, start: str
) -> None:
    write_environment(tmp_path, "word_quiz", start)
    source, test = (
        ast.parse((tmp_path / name).read_text()) for name in ("word_quiz.py", "test_word_quiz.py")
    )
    imported = {
        alias.name
        for node in ast.walk(test)
        if isinstance(node, ast.ImportFrom) and node.module == "word_quiz"
        for alias in node.names
    }
    defined = {
        node.name for node in source.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    for node in source.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            defined |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    assert "WordQuiz" in imported
    assert imported <= defined
    assert any(isinstance(node, ast.FunctionDef) for node in test.body)


def test_the_files_of_a_starting_point_are_in_a_folder_of_the_environments_name(
    tmp_path: Path,
) -> None:
    write_environment(tmp_path, "harbours", "documents")
    documents = tmp_path / "harbours_documents"
    questions = (documents / "questions.jsonl").read_text().splitlines()
    assert len(questions) > 20
    sources = {json.loads(line)["source"] for line in questions}
    assert sources == {path.stem for path in documents.glob("*.md")}
    assert "harbours_documents" in (tmp_path / "harbours.py").read_text()


@pytest.mark.parametrize("start", STARTING_POINTS)
def test_worked_examples_do_not_move_a_case_to_another_split(tmp_path: Path, start: str) -> None:
    write_environment(tmp_path, "word_quiz", start)
    file = f"{tmp_path}/word_quiz.py:WordQuiz"
    suites = [load_environment(file, {"examples": count}).suite() for count in (0, 2)]
    for split in Split:
        first, second = ([case.id for case in suite.cases(split)] for suite in suites)
        assert first == second


def test_a_new_project_file_is_valid_and_has_its_schema(tmp_path: Path) -> None:
    write_environment(tmp_path, "word_quiz")
    project = find_project(tmp_path)
    assert project.root == tmp_path
    layers = [Layer(DEFAULTS, defaults("train", ())), *project.file.layers("word_quiz", "train")]
    checked = check_types(merge(layers, [], is_operator=False), "train", ())
    assert checked.play.lora == {}
    first, _, _ = (tmp_path / "sparring.toml").read_text().partition("\n")
    schema = json.loads((tmp_path / first.removeprefix("#:schema ")).read_text())
    assert "settings" in schema["properties"]


def test_notes_for_coding_agents_name_commands_that_exist_and_own_notes_stay(
    tmp_path: Path,
) -> None:
    (tmp_path / "new").mkdir()
    write_environment(tmp_path / "new", "word_quiz")
    notes = (tmp_path / "new" / "AGENTS.md").read_text()
    commands = re.findall(r"^    sparring (.*?)  ", notes, re.M)
    assert [words.split()[0] for words in commands] == ["env", "check", "train", "ship", "rollout"]
    assert "held-out" in notes
    other = tmp_path / "other"
    other.mkdir()
    (other / "AGENTS.md").write_text("mine")
    write_environment(other, "word_quiz")
    assert (other / "AGENTS.md").read_text() == "mine"


def test_git_ignores_what_runs_write_and_an_own_gitignore_stays(tmp_path: Path) -> None:
    write_environment(tmp_path, "word_quiz")
    assert "/runs/\n" in (tmp_path / ".gitignore").read_text()
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "sparring.toml").unlink()
    (other / ".gitignore").write_text("mine")
    write_environment(other, "word_quiz")
    assert (other / ".gitignore").read_text() == "mine"


@pytest.mark.parametrize("is_above", [False, True])
def test_a_folder_in_a_project_gets_no_second_project_file(tmp_path: Path, is_above: bool) -> None:
    (tmp_path / "sparring.toml").write_text("")
    folder = tmp_path / "envs" if is_above else tmp_path
    written = write_environment(folder, "word_quiz")
    assert written == [folder / "word_quiz.py", folder / "test_word_quiz.py"]
    others = {str(each.relative_to(tmp_path)) for each in written}
    assert set(contents(tmp_path)) == {"sparring.toml", *others}


@pytest.mark.parametrize(
    "existing",
    ["word_quiz.py", "test_word_quiz.py", "word_quiz_documents/questions.jsonl"],
)
def test_a_file_that_exists_is_not_overwritten_and_nothing_is_written(
    tmp_path: Path, existing: str
) -> None:
    (tmp_path / existing).parent.mkdir(exist_ok=True)
    (tmp_path / existing).write_text("mine")
    with pytest.raises(InvalidInput, match="exists already; choose another name") as refused:
        write_environment(tmp_path, "word_quiz", "documents")
    assert str(tmp_path / existing) in str(refused.value)
    assert contents(tmp_path) == {existing: "mine"}


def test_a_second_environment_joins_the_first(tmp_path: Path) -> None:
    write_environment(tmp_path, "one")
    before = contents(tmp_path)
    write_environment(tmp_path, "two", "game")
    after = contents(tmp_path)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"two.py", "test_two.py"}


def test_an_unknown_starting_point_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no template 'chess'") as refused:
        write_environment(tmp_path, "word_quiz", "chess")
    assert all(f"{each} (" in str(refused.value) for each in STARTING_POINTS)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    ("name", "start"), [("agent", "tool"), ("suite", "documents"), ("hunt", "game")]
)
def test_a_name_that_would_hide_one_of_the_template_is_refused(
    tmp_path: Path, name: str, start: str
) -> None:
    with pytest.raises(InvalidInput, match=f"choose another name, such as {name}_task"):
        write_environment(tmp_path, name, start)
    assert contents(tmp_path) == {}
    write_environment(tmp_path, f"{name}_task", start)
