"""Environments: config, and addresses of services."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
from pydantic import Field

from sparring import Environment
from sparring.contracts.errors import InvalidInput, SettingError
from sparring.environments.environment import read_agent, read_suite


class Sized(Environment):
    """Has a size."""

    class Config(Environment.Config):
        size: int = Field(3, ge=1)


def test_config_is_checked_and_frozen():
    assert Sized().config.size == 3
    assert Sized(size=5).config.size == 5
    with pytest.raises(SettingError, match=r"config\.size: Input should be greater"):
        Sized(size=0)
    with pytest.raises(SettingError, match=r"config\.sise: Extra inputs.*its fields: size"):
        Sized(sise=4)
    with pytest.raises(ValueError, match="frozen"):
        Sized().config.size = 4


def test_an_address_is_there_once_the_service_is():
    environment = Sized()
    with pytest.raises(InvalidInput, match="no running service 'web'"):
        environment.address("web")
    environment.add_addresses({"web": "127.0.0.1:80"})
    assert environment.address("web") == "127.0.0.1:80"


CELL = """
from sparring import Environment

class Cell(Environment):
    def suite(self):
        return 1 / 0

    def agent(self):
        raise NotImplementedError
"""


def test_an_environment_of_a_notebook_shows_what_failed_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "a_cell", types.ModuleType("a_cell"))  # without a file
    written: dict[str, Any] = {"__name__": "a_cell"}
    exec(CELL, written)
    cell = written["Cell"]()
    with pytest.raises(InvalidInput, match=r"Cell\.suite\(\) failed: ZeroDivisionError"):
        read_suite(cell)
    with pytest.raises(InvalidInput, match=r"Cell\.agent\(\) failed: NotImplementedError"):
        read_agent(cell)
