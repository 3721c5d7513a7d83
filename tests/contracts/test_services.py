"""Services: what a declaration may say, and the command it stands for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.errors import InvalidInput
from sparring.contracts.services import Service


def test_a_command_that_is_no_list_is_refused() -> None:
    with pytest.raises(InvalidInput, match="a list of strings"):
        Service("web", "python server.py")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"command": []}, "service web: the command must be a list of strings"),
        ({"ready_http": "/", "ready_line": "up"}, "give ready_http or ready_line, not both"),
        ({"seconds": 0}, "service web: seconds must be above 0"),
        ({"seconds": -1.5}, "service web: seconds must be above 0"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_by_the_name_of_the_service(
    fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        Service("web", **{"command": ["python"], **fields})
    assert problem in str(refused.value)


@settings(max_examples=30)
@given(st.integers(1, 65535))
def test_the_port_is_put_wherever_the_command_asks_for_it(port: int) -> None:
    service = Service("web", ["serve", "{port}", "--url=http://x:{port}/{port}", "{host}"])
    url = f"--url=http://x:{port}/{port}"
    assert service.command_at(port) == ["serve", str(port), url, "{host}"]


def test_parts_that_are_no_strings_become_strings() -> None:
    command: Any = ["serve", 3]
    assert Service("web", command).command_at(80) == ["serve", "3"]
