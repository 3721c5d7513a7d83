"""`sparring.errors`: one door to all errors, and its docstring shows their tree."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import sparring.contracts.errors
from sparring import errors


def lines(error: type[Exception], depth: int = 0) -> Iterator[str]:
    yield f"{'  ' * depth}* {error.__name__}"
    module = sparring.contracts.errors
    below = [each for each in error.__subclasses__() if each.__module__ == module.__name__]
    for each in sorted(below, key=lambda each: inspect.getsourcelines(each)[1]):
        yield from lines(each, depth + 1)


def test_the_docstring_shows_the_tree_as_it_is():
    assert "\n".join(lines(errors.SparringError)) in inspect.getdoc(errors)


def test_every_error_can_be_imported():
    for name, thing in vars(sparring.contracts.errors).items():
        if inspect.isclass(thing):
            assert getattr(errors, name) is thing
