"""A project: where it begins, and which environment a name stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.errors import EnvironmentNotFound, InvalidInput
from sparring.projects import find_project
from sparring.projects.project import project_file_above

PLAIN = '''
from sparring import Environment

class Plain(Environment):
    """A plain one."""
'''


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_an_unknown_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, calculator=PLAIN)
    with pytest.raises(EnvironmentNotFound, match="did you mean calculator"):
        find_project(tmp_path).find("calculater")
    with pytest.raises(InvalidInput, match=r"there is no file nobody\.py"):
        find_project(tmp_path).find("nobody.py:X")


def test_two_environments_of_one_name_are_distinguished_by_class(tmp_path: Path) -> None:
    write(tmp_path, both=PLAIN + PLAIN.replace("class Plain", "class Other"))
    project = find_project(tmp_path)
    with pytest.raises(EnvironmentNotFound, match="write both:Plain or both:Other"):
        project.find("both")
    assert project.find("both:Other").class_name == "Other"
    assert project.find(f"{tmp_path}/both.py:Other").class_name == "Other"


def test_the_nearest_folder_with_a_project_file_is_the_project(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "sparring.toml").write_text("[project]\nruns = 'kept'\n")
    assert find_project(inner).root == tmp_path
    assert find_project(inner).runs == tmp_path / "kept"
    (tmp_path / "a" / "sparring.toml").write_text("[project]\nruns = 'mine'\n")
    assert find_project(inner).runs == tmp_path / "a" / "mine"
    assert project_file_above(inner) == tmp_path / "a" / "sparring.toml"


def test_a_folder_without_a_project_file_is_a_project_of_its_own(tmp_path: Path) -> None:
    project = find_project(tmp_path)
    assert (project.root, project.state) == (tmp_path, tmp_path / ".sparring")


def test_a_project_file_that_is_no_text_is_refused_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "sparring.toml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(InvalidInput, match=r"sparring\.toml: cannot be read"):
        find_project(tmp_path)


def test_a_folder_to_look_in_that_is_not_there_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "sparring.toml").write_text("[project]\nlook_in = ['gone']\n")
    with pytest.raises(InvalidInput, match=r"sparring\.toml:2: look_in lists .*gone"):
        find_project(tmp_path).folders()


def test_only_the_folders_to_look_in_are_searched(tmp_path: Path) -> None:
    write(tmp_path, envs__inside=PLAIN, outside=PLAIN)
    (tmp_path / "sparring.toml").write_text("[project]\nlook_in = ['envs']\n")
    project = find_project(tmp_path)
    assert project.find("inside").file == str(tmp_path / "envs" / "inside.py")
    with pytest.raises(EnvironmentNotFound):
        project.find("outside")


def test_a_caller_who_may_not_choose_files_finds_environments_by_name_only(tmp_path: Path) -> None:
    write(tmp_path, plain=PLAIN)
    project = find_project(tmp_path)
    assert project.find("plain", by_name_only=True).class_name == "Plain"
    with pytest.raises(EnvironmentNotFound, match="there is no environment"):
        project.find(f"{tmp_path}/plain.py:Plain", by_name_only=True)


def test_a_file_outside_of_the_project_is_found_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    write(tmp_path, there__far=PLAIN)
    project = find_project(tmp_path / "here")
    far = tmp_path / "there" / "far.py"
    found = project.find(str(far))
    assert (found.class_name, found.file) == ("Plain", str(far))
    assert project.sources_of(found) == [far]
    assert project.find(f"{far}:made").target == f"{far}:made"  # loading it decides


def test_a_file_with_several_environments_must_be_given_a_name(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    write(tmp_path, there__both=PLAIN + PLAIN.replace("class Plain", "class Other"))
    with pytest.raises(EnvironmentNotFound, match=r"has several environments: .*FILE:NAME"):
        find_project(tmp_path / "here").find(f"{tmp_path}/there/both.py")


def test_a_name_whose_file_is_broken_is_answered_with_the_problem(tmp_path: Path) -> None:
    write(tmp_path, broken="x = 1\ndef f(:\n")
    with pytest.raises(EnvironmentNotFound, match=r"broken\.py:2 does not parse"):
        find_project(tmp_path).find("broken")


def test_the_sources_of_an_environment_are_its_file_and_what_it_imports(tmp_path: Path) -> None:
    write(tmp_path, plain=PLAIN + "import part\n", part="X = 1\n", other="Y = 2\n")
    project = find_project(tmp_path)
    sources = {path.name for path in project.sources_of(project.find("plain"))}
    assert sources == {"plain.py", "part.py"}
