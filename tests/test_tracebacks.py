"""Errors are located in the code of the user, not in the libraries that it calls."""

import json

from sparring.contracts.specs import PlaySettings
from sparring.tracebacks import line_that_raised


def raised_by(work):
    try:
        work()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_the_line_is_the_users_where_a_library_raises():
    error = raised_by(lambda: json.loads("{"))
    assert line_that_raised(error).startswith("test_tracebacks.py:")


def test_the_line_is_the_users_where_an_installed_package_or_sparring_raises():
    error = raised_by(lambda: PlaySettings.model_validate({"seed": "x"}))
    assert line_that_raised(error).startswith("test_tracebacks.py:")


def test_without_a_line_of_the_user_it_is_the_innermost():
    compiled = compile("import json\njson.loads('{')", "<frozen user>", "exec")
    error = raised_by(lambda: exec(compiled))
    error.__traceback__ = error.__traceback__.tb_next.tb_next  # from json.loads on
    assert not line_that_raised(error).startswith("test_tracebacks.py")
    assert line_that_raised(error)


def test_an_error_that_was_not_raised_has_no_line():
    assert line_that_raised(ValueError()) == ""
