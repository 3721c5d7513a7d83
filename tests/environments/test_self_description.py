"""What an environment says of itself, as JSON."""

from __future__ import annotations

import json
import os
import sys
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import Field

from sparring import Environment, Service, measure, passed
from sparring.contracts.environments import EnvironmentDescription
from sparring.environments.self_description import describe, main

pytestmark = pytest.mark.filterwarnings(
    "ignore::pydantic.json_schema.PydanticJsonSchemaWarning"  # a default that is no JSON
)


@measure(name="polite")
def says_please(rollout: Any) -> Any:
    return passed("please")


def short(rollout: Any) -> bool:
    return True


class Color(Enum):
    RED = "red"


class Shop(Environment):
    """Sells things."""

    measures = ("exact", says_please, short)
    settings: ClassVar[dict[str, Any]] = {"temperature": 0.5, "device": Color.RED, "x": object}
    services = (Service("web", ["serve", "{port}"], ready_http="/"),)
    needs_sandbox = True

    class Config(Environment.Config):
        where: str
        size: int = Field(3, ge=1, le=9, description="how large")
        stock: Path = Path("stock.txt")
        colors: list[Color] = Field(default_factory=list)
        check: Any = Field(short, description="a function")


def fields() -> dict[str, dict[str, Any]]:
    return {field["name"]: field for field in describe(Shop)["fields"]}


def test_a_description_is_json_and_reads_as_one() -> None:
    description = describe(Shop)
    again = EnvironmentDescription.model_validate_json(json.dumps(description))
    assert (again.name, again.needs_sandbox, again.error) == ("Shop", True, "")
    assert [field.name for field in again.fields] == ["where", "size", "stock", "colors", "check"]
    assert list(again.services) == [Service("web", ["serve", "{port}"], ready_http="/")]


def test_a_name_of_its_own_goes_before_the_name_of_the_class() -> None:
    assert describe(type("Named", (Shop,), {"name": "store"}))["name"] == "store"


def test_measures_are_listed_by_their_names_however_they_are_given() -> None:
    assert describe(Shop)["measures"] == ["exact", "polite", "short"]


def test_settings_that_are_no_json_are_shown_as_text() -> None:
    settings = describe(Shop)["settings"]
    assert (settings["temperature"], settings["device"]) == (0.5, "red")
    assert "object" in settings["x"]


def test_a_field_has_type_default_limits_and_description() -> None:
    size = fields()["size"]
    assert (size["type"], size["required"], size["default"]) == ("int", False, 3)
    assert size["description"] == "how large"
    assert (size["json_schema"]["minimum"], size["json_schema"]["maximum"]) == (1, 9)
    where = fields()["where"]
    assert (where["required"], where["default"]) == (True, None)


def test_defaults_that_are_no_json_are_shown_as_text() -> None:
    assert fields()["stock"]["default"] == "stock.txt"
    assert "short" in fields()["check"]["default"]


def test_a_schema_brings_along_what_it_refers_to() -> None:
    schema = fields()["colors"]["json_schema"]
    assert schema["items"] == {"$ref": "#/$defs/Color"}
    assert schema["$defs"]["Color"]["enum"] == ["red"]


def test_a_type_without_a_schema_is_described_without_one() -> None:
    class Odd(Environment):
        class Config(Environment.Config):
            model_config: ClassVar[Any] = {"arbitrary_types_allowed": True}
            lock: Path | Shop | None = None

    (field,) = describe(Odd)["fields"]
    assert (field["name"], field["json_schema"]) == ("lock", {})
    assert "Shop" in field["type"]


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test imports and appends to `sys.path` is forgotten."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


NOISY = """
import os
from sparring import Environment
os.write(1, b"noise")
class Noisy(Environment): pass
"""


def reply_of(target: str, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What `main` writes; it takes stdout away, as it may in a process of its own."""
    stdout = os.dup(1)
    try:
        assert main(target) == 0
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
    reply: dict[str, Any] = json.loads(capfd.readouterr().out)
    return reply


@pytest.mark.usefixtures("forgotten")
def test_only_the_description_is_written_whatever_the_file_writes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "noisy_environment.py"
    file.write_text(NOISY)
    assert reply_of(f"{file}:Noisy", capfd)["name"] == "Noisy"


@pytest.mark.usefixtures("forgotten")
def test_a_file_that_breaks_is_described_by_its_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broken_environment.py"
    file.write_text("raise RuntimeError('no database')\n")
    reply = reply_of(f"{file}:X", capfd)
    assert reply["name"] == f"{file}:X"
    assert reply["error"].endswith("cannot be loaded: RuntimeError: no database")


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("services = ('web',)", "TypeError: "),
        ("measures = (len)", "Odd.measures must be a list or tuple: write measures = (one,)"),
    ],
)
def test_a_class_that_cannot_be_described_is_described_by_its_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], line: str, error: str
) -> None:
    file = tmp_path / "odd_environment.py"
    file.write_text(f"from sparring import Environment\nclass Odd(Environment):\n    {line}\n")
    assert reply_of(f"{file}:Odd", capfd)["error"].startswith(error)


def test_a_path_in_the_command_of_a_service_is_shown_as_text() -> None:
    class Served(Environment):
        services = (Service("stock", ["python", Path("/x/stock.py")]),)  # type: ignore[list-item]

    assert describe(Served)["services"][0]["command"] == ["python", "/x/stock.py"]
