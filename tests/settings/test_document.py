"""Project files are parsed as TOML, and every value has its line."""

from __future__ import annotations

import pytest

from sparring.contracts.errors import InvalidInput, SettingError
from sparring.settings.document import ParsedFile, parse

TOML = """\
[project]
look_in = [
  "envs",
  "[more]",
]

[settings]
lora.r = 8  # = 16
"beta" = 0.1
project = '''
model = "in a string"
'''
guards = { entropy = "warn" }

[[lock]]
field = "beta"

[[lock]]
field = "seed"
"""


def lines_of(text: str, name: str = "sparring.toml") -> dict[str, int]:
    return dict(parse(text, name).lines)


def test_every_key_of_a_toml_file_has_its_line() -> None:
    lines = {
        "project": 1,
        "project.look_in": 2,
        "settings": 7,
        "settings.lora.r": 8,
        "settings.beta": 9,
        "settings.project": 10,
        "settings.guards": 13,
        "lock.0": 15,
        "lock.0.field": 16,
        "lock.1": 18,
        "lock.1.field": 19,
    }
    assert lines_of(TOML).items() >= lines.items()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('x = "# [a]"\ny = 1\n', 2),
        ('x = "it\'s"\ny = 1\n', 2),
        ('x = "a \\" ["\ny = 1\n', 2),
        ("x = '''one line'''\ny = 1\n", 2),
        ('x = """\ny = 2\n""" # """\ny = 1\n', 4),
        ('x = """ a\ny = 2\n"""\ny = 1\n', 4),
        ('x = """a \\""" b"""\ny = 1\n', 2),
        ("x = [\n  [1], # ]\n  { y = 2 },\n]\ny = 1\n", 5),
        ("x = 1\r\ny = 1\r\n", 2),
    ],
)
def test_strings_comments_and_brackets_do_not_shift_lines(text: str, line: int) -> None:
    assert lines_of(text)["y"] == line


def test_a_place_is_that_of_the_value_or_of_the_nearest_one() -> None:
    document = parse(TOML, "sparring.toml")
    assert document.place_of("settings.beta") == "sparring.toml:9"
    assert document.place_of("settings.lora") == "sparring.toml:8"
    assert document.place_of("settings.guards.entropy") == "sparring.toml:13"  # an inline table
    assert document.place_of("settings.seed") == "sparring.toml:7"  # the table around it
    assert document.place_of("budget.steps") == "sparring.toml"


def test_the_place_of_a_table_without_a_line_is_that_of_its_first_value() -> None:
    assert ParsedFile("f.toml", {}, {"a.x": 4, "a.y": 3, "ab": 1}).place_of("a") == "f.toml:3"


def test_the_places_in_a_table_are_known_by_the_names_there() -> None:
    document = ParsedFile("f.toml", {}, {"a": 1, "a.x": 2, "a.t.y": 3, "ab": 9})
    assert document.places_below("a") == {"": "f.toml:1", "x": "f.toml:2", "t.y": "f.toml:3"}
    assert document.places_below("other") == {"": "f.toml"}


@pytest.mark.parametrize(
    ("text", "place"),
    [("[settings]\nbeta = \n", "sparring.toml:2"), ("x = " + "[" * 5000, "sparring.toml")],
)
def test_a_file_that_cannot_be_parsed_is_refused_with_its_line(text: str, place: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(text, "sparring.toml")
    assert str(refused.value).startswith(f"{place}: this is not TOML: ")


def test_an_empty_file_holds_no_tables() -> None:
    assert parse("# nothing yet\n", "sparring.toml") == ParsedFile("sparring.toml", {}, {})


def test_a_value_that_no_setting_can_have_is_refused() -> None:
    with pytest.raises(SettingError, match=r"this date cannot be a setting"):
        parse("[settings]\nx = 2024-01-01\n", "sparring.toml")
