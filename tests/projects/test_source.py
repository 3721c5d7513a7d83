"""Reading what a file declares without running it."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparring.projects.source import ClassFacts, FileFacts, read_facts


def facts(folder: Path, source: str) -> FileFacts:
    path = folder / "file.py"
    path.write_text(textwrap.dedent(source))
    return read_facts(path)


def only_class(folder: Path, source: str) -> ClassFacts:
    (found,) = facts(folder, source).classes
    return found


@pytest.mark.parametrize(
    ("source", "base"),
    [
        ("from sparring import Environment as Env\nclass E(Env): pass", "sparring.Environment"),
        ("import sparring as s\nclass E(s.Environment): pass", "sparring.Environment"),
        ("import a.b\nclass E(a.b.C): pass", "a.b.C"),
        ("import a.b as c\nclass E(c.D): pass", "a.b.D"),
        ("from . import near\nclass E(near.C): pass", ".near.C"),
        ("from ..far import C\nclass E(C): pass", "..far.C"),
        ("import s\nBase = s.C\nclass E(Base): pass", "s.C"),
        ("class E(Near): pass", "Near"),
        ("from s import C\nclass E(C[int]): pass", "s.C"),
    ],
)
def test_a_base_is_named_as_it_was_imported(tmp_path: Path, source: str, base: str) -> None:
    assert only_class(tmp_path, source).bases == (base,)


def test_a_base_that_is_no_name_is_left_out(tmp_path: Path) -> None:
    assert only_class(tmp_path, "class E(make(), Near): pass").bases == ("Near",)


def test_imports_and_classes_under_conditions_count_and_those_in_functions_do_not(
    tmp_path: Path,
) -> None:
    found = facts(
        tmp_path,
        """
        try:
            from one import A
        except ImportError:
            from two import A
        if A:
            with A() as a:
                class Inner(A): pass
        else:
            from three import *
        def function():
            import four.five
            class Hidden(A): pass
        """,
    )
    assert [each.name for each in found.classes] == ["Inner"]
    assert found.imports == {"A": "two.A"}
    assert found.star_imports == ("three",)
    assert found.modules == ("four.five", "one.A", "three.x", "two.A")


def test_line_description_name_and_config_class_are_read(tmp_path: Path) -> None:
    found = only_class(
        tmp_path,
        """
        class One(Base):
            '''Does
            one thing.

            And more.'''
            name: str = "first"
            class Config(Base.Config):
                pass
        """,
    )
    assert (found.name, found.line, found.given_name) == ("One", 2, "first")
    assert (found.description, found.config_class) == ("Does one thing.", "One.Config")


@pytest.mark.parametrize(
    ("body", "name", "config"),
    [
        ("name = 'x'; Config = parts.Config", "x", "parts.Config"),
        ("env_config_cls: type = Theirs", "", "Theirs"),
        ("name = 3", "", ""),
        ("name = make(); Config = make()", "", ""),
        ("name: str; Config: type", "", ""),
        ("other = 'x'", "", ""),
    ],
)
def test_only_what_is_written_out_is_taken_for_a_name_or_a_config_class(
    tmp_path: Path, body: str, name: str, config: str
) -> None:
    found = only_class(tmp_path, f"class One:\n    {body}\n")
    assert (found.given_name, found.config_class) == (name, config)


def test_a_file_that_does_not_parse_is_a_problem_with_its_line(tmp_path: Path) -> None:
    found = facts(tmp_path, "x = 1\n\nclass A(:\n")
    assert found.problem.startswith("does not parse: ")
    assert (found.problem_line, found.classes) == (3, ())


def test_a_path_that_is_no_file_or_too_large_is_reported_and_not_read(tmp_path: Path) -> None:
    assert read_facts(tmp_path).problem == "is not a regular file"
    os.mkfifo(tmp_path / "pipe.py")  # reading it would wait for ever
    assert read_facts(tmp_path / "pipe.py").problem == "is not a regular file"
    (tmp_path / "large.py").write_bytes(b"#" * 2_000_001)
    assert read_facts(tmp_path / "large.py").problem == "is larger than 2,000,000 bytes"
    assert read_facts(tmp_path / "gone.py").problem.startswith("cannot be read: ")


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60) | st.text("()[]:\n class=\0'\"x\\", max_size=60).map(str.encode))
def test_no_content_makes_it_raise(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "any.py"
    path.write_bytes(content)
    found = read_facts(path)
    assert not (found.problem and found.classes)


def test_a_file_is_not_run(tmp_path: Path) -> None:
    written = tmp_path / "written"
    source = f"open({str(written)!r}, 'w').write('ran')\nclass A: pass\n"
    assert only_class(tmp_path, source).name == "A"
    assert not written.exists()
