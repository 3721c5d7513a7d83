"""Every refusal has a remedy that a caller without a shell can follow."""

from __future__ import annotations

from sparring.contracts import errors
from sparring.operations.operation import Role
from sparring.surfaces.tools.catalogue import tools_for
from sparring.surfaces.tools.remedies import _REMEDIES, remedy_for, with_tool_names


def test_remedies_of_errors_name_tools():
    assert all(hasattr(errors, name) for name in _REMEDIES)
    there = set(tools_for(Role.OPERATOR))
    for remedy in _REMEDIES.values():
        named = {word.strip(".,;") for word in remedy.split() if "_" in word}
        assert named <= there
    text = "`sparring run wait shop-1` waits; `sparring env list`, `sparring doctor`"
    assert with_tool_names(text) == "wait_for_run waits; list_environments, `sparring doctor`"


def test_an_error_without_a_remedy_of_its_own_has_that_of_its_nearest_class() -> None:
    assert remedy_for(errors.LockedConfig("x")) == remedy_for(errors.LockedField("x"))
    assert remedy_for(errors.NotEnoughMemory("x")) == remedy_for(errors.SettingError("x"))
    assert remedy_for(errors.SuiteError("x")) == remedy_for(errors.InvalidInput("x"))
    assert remedy_for(errors.LockedField("x")) != remedy_for(errors.SettingError("x"))
    assert remedy_for(errors.GuardStop("x")) == "Tell the owner."


def test_only_commands_that_are_tools_are_replaced() -> None:
    assert with_tool_names("the sparring partner is here") == "the sparring partner is here"
    assert with_tool_names("`sparring run resume abc --take-over` resumes") == "resume_run resumes"
    assert with_tool_names("no command at all") == "no command at all"
