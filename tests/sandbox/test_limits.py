"""Limits of a sandbox are positive."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from sparring.sandbox.limits import SandboxLimits

NUMBERS = [field.name for field in fields(SandboxLimits) if field.name != "loopback"]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_that_allows_nothing_is_refused_by_name(name: str, value: int) -> None:
    given: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"{name} must be above 0"):
        SandboxLimits(**given)


def test_network_sockets_are_off_unless_they_are_asked_for() -> None:
    assert SandboxLimits().loopback is False
    assert SandboxLimits(loopback=True).loopback is True


def test_one_file_fits_into_the_workspace_by_default() -> None:
    limits = SandboxLimits()
    assert limits.file_bytes <= limits.disk_bytes
    assert limits.scratch_bytes <= limits.memory_bytes
