"""Errors are located in the code of the user, not in the libraries that it calls."""

import json
from dataclasses import dataclass

import pytest

from sparring import Suite
from sparring.contracts.specs import PlaySettings
from sparring.tracebacks import error_with_line, line_that_raised


def raised_by(work):
    try:
        work()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_the_line_is_the_users_where_a_library_raises():
    error = raised_by(lambda: json.loads("{"))
    assert line_that_raised(error).startswith("test_tracebacks.py:")


@pytest.mark.parametrize(
    "work",
    [
        lambda: PlaySettings.model_validate({"seed": "x"}),
        lambda: Suite.from_records([{"input": "x"}], shares={"x": 1}),
    ],
    ids=["installed package", "sparring"],
)
def test_the_line_is_the_users_where_an_installed_package_or_sparring_raises(work):
    assert line_that_raised(raised_by(work)).startswith("test_tracebacks.py:")


def test_packages_that_are_installed_elsewhere_are_not_the_users_either(tmp_path):
    for folder in ("lib/python3/dist-packages", ".local/lib/python3.11/site-packages"):
        file = tmp_path / folder / "elsewhere.py"
        file.parent.mkdir(parents=True)
        code = compile("def fail():\n    raise ValueError", str(file), "exec")
        names = {}
        exec(code, names)
        assert line_that_raised(raised_by(names["fail"])).startswith("test_tracebacks.py:")


def test_generated_methods_are_not_the_users_line():
    @dataclass(order=True)
    class Mail:
        size: object

    error = raised_by(lambda: sorted([Mail(1), Mail("x")]))
    assert line_that_raised(error).startswith("test_tracebacks.py:")


def test_a_line_of_sparring_is_not_named():
    """Such as the line that calls an environment's class with a field that it does not have."""
    error = raised_by(lambda: Suite.from_records([{"input": "x"}], shares={"x": 1}))
    error.__traceback__ = error.__traceback__.tb_next.tb_next
    assert line_that_raised(error) == ""
    assert error_with_line(error) == f"{type(error).__name__}: {error}"


def test_without_a_line_of_the_user_it_is_the_innermost_of_a_library():
    compiled = compile("import json\njson.loads('{')", "<frozen user>", "exec")
    error = raised_by(lambda: exec(compiled))
    error.__traceback__ = error.__traceback__.tb_next.tb_next  # from json.loads on
    assert not line_that_raised(error).startswith("test_tracebacks.py")
    assert line_that_raised(error)


def test_an_error_that_was_not_raised_has_no_line():
    assert line_that_raised(ValueError()) == ""


def test_a_line_is_found_in_a_folder_that_no_longer_exists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    compiled = compile("1 / 0", "notebook", "exec")
    assert line_that_raised(raised_by(lambda: exec(compiled))) == "notebook:1"
