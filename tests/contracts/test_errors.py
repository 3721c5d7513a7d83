"""The error tree: the names and exit codes that programs rely on."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from sparring.contracts import errors
from sparring.contracts.errors import (
    CasesBroken,
    ConfigError,
    EnvironmentBroken,
    InvalidInput,
    LockedConfig,
    LockedField,
    RunFailed,
    SettingError,
    SparringError,
)


def below(kind: type[SparringError]) -> Iterator[type[SparringError]]:
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from below(child)


TREE = sorted(set(below(SparringError)), key=lambda kind: kind.__name__)


def test_errors_of_the_caller_exit_with_2_and_failures_with_another_code() -> None:
    codes = {kind.__name__: kind.exit_code for kind in TREE if kind.exit_code != 2}
    assert codes == {
        "AmbiguousRun": 102,
        "EndpointError": 100,
        "FaultyArtefact": 110,
        "GuardStop": 100,
        "InfrastructureError": 100,
        "LauncherFailed": 100,
        "NotBetter": 110,
        "NotEnoughSpace": 100,
        "NotFinished": 101,
        "NotProved": 110,
        "RunNotFound": 102,
        "ServiceFailed": 100,
    }
    assert all(kind.exit_code == 2 for kind in below(InvalidInput))


def test_only_errors_that_quote_an_environment_are_foreign() -> None:
    foreign = {kind for kind in TREE if kind.is_foreign}
    assert foreign == {ConfigError, LockedConfig, EnvironmentBroken}


@pytest.mark.parametrize("kind", [each for each in TREE if each is not RunFailed])
def test_an_error_is_known_by_the_name_of_its_class(kind: type[SparringError]) -> None:
    assert kind("what failed").name == kind.__name__
    assert str(kind("what failed")) == "what failed"


def test_a_failed_run_has_the_name_and_code_of_the_error_that_ended_it() -> None:
    ended = RunFailed("no memory", kind="NotEnoughMemory", exit_code=2)
    assert (ended.name, ended.exit_code, str(ended)) == ("NotEnoughMemory", 2, "no memory")
    assert (RunFailed("gone").name, RunFailed("gone").exit_code) == ("RunFailed", 100)


def test_a_failed_run_that_crosses_a_process_keeps_name_and_code() -> None:
    again = pickle.loads(pickle.dumps(RunFailed("no memory", "NotEnoughMemory", 2)))
    assert (again.name, again.exit_code, str(again)) == ("NotEnoughMemory", 2, "no memory")


@pytest.mark.parametrize(
    ("kind", "caught_as"),
    [(CasesBroken, errors.SuiteError), (LockedConfig, LockedField), (LockedField, SettingError),
     (ConfigError, SettingError), (SettingError, InvalidInput), (errors.OverBudget, SettingError)],
)  # fmt: skip
def test_a_special_error_is_caught_with_its_general_one(
    kind: type[SparringError], caught_as: type[SparringError]
) -> None:
    with pytest.raises(caught_as):
        raise kind("why")
