"""Loading an environment from `FILE:NAME`."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput, SettingError
from sparring.environments import load_environment
from sparring.environments.loading import load_class

SIZED = """
    from sparring import Environment
    class E(Environment):
        name = "sized"
        class Config(Environment.Config):
            size: int = 3
    made = E(size=9)
"""
Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a file that can be loaded; what loading imports is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = dict(sys.modules)

    def written(name: str, source: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path

    yield written
    for name in sys.modules.keys() - before.keys():
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_an_environment_is_loaded_from_its_file_with_its_config(write: Write) -> None:
    file = write("e.py", SIZED)
    assert load_environment(f"{file}:E", {"size": 4}).config.size == 4
    assert load_environment(f"{file}:sized").config.size == 3
    assert load_environment(f"{file}:made").config.size == 9
    with pytest.raises(SettingError, match="name the class"):
        load_environment(f"{file}:made", {"size": 4})


def test_a_config_that_does_not_fit_is_refused_by_the_environment(write: Write) -> None:
    with pytest.raises(SettingError, match=r"config\.size"):
        load_environment(f"{write('e.py', SIZED)}:E", {"size": "large"})


def test_an_init_that_does_not_pass_the_config_is_refused_with_the_fix(write: Write) -> None:
    file = write(
        "f.py",
        """
        from sparring import Environment
        class F(Environment):
            def __init__(self):
                pass
        """,
    )
    with pytest.raises(InvalidInput, match=r"pass it on to super\(\)"):
        load_environment(f"{file}:F", {"size": 4})


def test_the_class_of_an_instance_is_the_class_that_made_it(write: Write) -> None:
    file = write("e.py", SIZED)
    assert load_class(f"{file}:E").__name__ == "E"
    assert load_class(f"{file}:made").__name__ == "E"


def test_the_name_may_be_left_out_where_the_file_has_one_environment(write: Write) -> None:
    only = write("only.py", "from sparring import Environment\nclass Only(Environment): pass\n")
    assert type(load_environment(str(only))).__name__ == "Only"
    both = write("both.py", f"{only.read_text()}class Other(Environment): pass\n")
    with pytest.raises(InvalidInput, match=r"both\.py has several environments: Only, Other"):
        load_environment(str(both))


def test_an_unknown_name_is_answered_with_those_there_are(write: Write) -> None:
    with pytest.raises(InvalidInput, match=r"has no environment 'F'; it has E, made, sized"):
        load_environment(f"{write('e.py', SIZED)}:F")
    with pytest.raises(InvalidInput, match=r"empty\.py has no environment; define agent, suite"):
        load_environment(f"{write('empty.py', 'x = 1')}:F")


def test_an_environment_that_the_file_only_imports_is_not_one_of_its_own(write: Write) -> None:
    write("base.py", SIZED)
    file = write("leaf.py", "from base import E\nclass Leaf(E): pass\n")
    assert load_environment(f"{file}:Leaf").config.size == 3
    with pytest.raises(InvalidInput, match="it has Leaf"):
        load_environment(f"{file}:E")


def test_a_file_with_the_name_of_an_installed_package_is_refused(write: Write) -> None:
    file = write("agents.py", "from agents import Agent\n")
    with pytest.raises(InvalidInput, match="name of an installed package, 'agents'"):
        load_environment(f"{file}:E")
    assert "agents" not in sys.modules or sys.modules["agents"].__file__ != str(file)


def test_a_missing_file_is_named_with_the_way_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no file .*gone\.py; write FILE:NAME"):
        load_environment(f"{tmp_path}/gone.py:E")


def test_a_file_that_is_no_python_is_refused(write: Write) -> None:
    with pytest.raises(InvalidInput, match=r"notes\.txt is not a Python file"):
        load_environment(f"{write('notes.txt', 'hello')}:E")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("x = 1\ny = x / 0\n", r"bad\.py:2 cannot be loaded: ZeroDivisionError"),
        ("\n\ndef f(:\n", r"bad\.py:3 cannot be loaded: SyntaxError"),
        ("import nothing_of_that_name\n", r"bad\.py:1 cannot be loaded: ModuleNotFoundError"),
        ("import sys\nsys.exit(3)\n", r"bad\.py:2 cannot be loaded: SystemExit: 3"),
    ],
)
def test_a_file_that_breaks_is_named_with_its_line(write: Write, source: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        load_environment(f"{write('bad.py', source)}:E")


def test_the_line_of_another_file_is_not_given_for_this_one(write: Write) -> None:
    write("broken_helper.py", "\n\n\ndef f(:\n")
    file = write("fine.py", "x = 1\nimport broken_helper\n")
    with pytest.raises(InvalidInput, match=r"fine\.py:2 cannot be loaded: SyntaxError"):
        load_environment(f"{file}:E")


def test_a_file_in_a_package_may_import_its_neighbours_relatively(write: Write) -> None:
    write("outer_pkg/__init__.py", "")
    write("outer_pkg/inner_pkg/__init__.py", "")
    write("outer_pkg/sizes.py", "LARGEST = 7\n")
    file = write(
        "outer_pkg/inner_pkg/near.py",
        """
        from sparring import Environment
        from ..sizes import LARGEST
        class Near(Environment):
            largest = LARGEST
        """,
    )
    near = load_class(f"{file}:Near")
    assert vars(near)["largest"] == 7
    assert near.__module__ == "outer_pkg.inner_pkg.near"
