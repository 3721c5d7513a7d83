"""What a terminal prints wraps between words, can be copied, and is controlled by no text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from sparring.contracts.result_text import Grid
from sparring.contracts.specs import Frozen
from sparring.surfaces.cli.page import (
    FactList,
    Paragraph,
    Part,
    advice,
    commands,
    fitting,
    headline,
    print_json,
    printable,
    show,
)

COMMAND = "sparring run clone 9c4e --set max_steps=200 --set learning_rate=0.001"


def lines_of(*parts: Part, width: int = 80) -> list[str]:
    console = Console(width=width)
    with console.capture() as capture:
        show(parts, console)
    return [line.rstrip() for line in capture.get().splitlines()]


@given(st.text())
def test_printable_text_controls_no_terminal_and_keeps_its_lines(text: str) -> None:
    shown = printable(text)
    assert all(character.isprintable() or character in "\n\t" for character in shown)
    assert shown.count("\n") == text.count("\n")
    assert printable(shown) == shown


def test_a_control_character_is_shown_by_its_number() -> None:
    assert printable("a\x1b[2Jb\u202ec\r") == "a\\x1b[2Jb\\x202ec\\x0d"


@pytest.mark.parametrize(
    "part",
    [
        Paragraph("a\x1b[2J", lead="b\x1b[2J"),
        FactList([("a\x1b[2J", "b\x1b[2J")]),
        Grid(("name",), [("a\x1b[2J",)]),
        headline("a\x1b[2J", "b\x1b[2J", ""),
    ],
)
def test_no_part_prints_a_control_character(part: Part) -> None:
    assert "\x1b" not in "".join(lines_of(part))
    assert "\\x1b[2J" in "".join(lines_of(part))


class Answer(Frozen):
    text: str


@pytest.mark.parametrize("value", [Answer(text="\x1b[2J é\n"), {"text": "\x1b[2J é\n"}])
def test_json_is_one_line_of_ascii(value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    print_json(value)
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert printed.count("\n") == 1
    assert json.loads(printed) == {"text": "\x1b[2J é\n"}


def test_a_paragraph_wraps_between_words_within_its_indentation() -> None:
    assert lines_of(Paragraph("one two three", indent=2), width=10) == ["  one two", "  three"]
    assert lines_of(advice("one two three"), width=10) == ["  → one", "  two", "  three"]
    assert lines_of(Paragraph("first\nsecond")) == ["first", "second"]


def test_a_command_in_a_sentence_is_not_broken() -> None:
    text = f"start from its rollouts: `{COMMAND}`; or wait"
    assert lines_of(Paragraph(text)) == ["start from its rollouts:", f"`{COMMAND}`; or wait"]
    long = f"`{COMMAND} {COMMAND}`"
    assert lines_of(Paragraph(f"say {long} now")) == ["say", long, "now"]


def test_a_path_is_not_broken() -> None:
    path = "/a" * 50
    assert lines_of(Paragraph(f"written to {path} today")) == ["written to", path, "today"]
    assert lines_of(FactList([("folder", path), ("time", "3 s")])) == [
        "folder",
        path,
        "time    3 s",
    ]


def test_a_command_that_does_not_fit_beside_its_purpose_is_below_it() -> None:
    shown = lines_of(*commands({"train again, longer": COMMAND, "the report": "sparring x"}))
    assert shown == ["", "train again, longer", COMMAND, "the report           sparring x"]


def test_a_long_value_wraps_beside_its_name() -> None:
    shown = lines_of(FactList([("based on", "two tried steps on this machine")]), width=30)
    assert shown == ["based on  two tried steps on", "          this machine"]


def test_words_in_a_table_wrap_and_figures_do_not() -> None:
    grid = Grid(("measure", "95 % interval"), [("a_" * 20, "+0.100 … +0.200")], texts=("measure",))
    shown = lines_of(grid, width=40)
    assert shown[0].endswith("95 % interval")
    assert shown[1].endswith("+0.100 … +0.200")
    assert "".join(line[:23].strip() for line in shown[1:]) == "a_" * 20


def test_a_table_without_room_leaves_out_its_optional_columns_in_their_order() -> None:
    heads = ("run", "state", "started", "reward")
    grid = Grid(heads, [("my-agent-9c4e", "completed", "19 Nov", "0.90")], heads, ("started",))
    assert "19 Nov" in lines_of(grid)[1]
    assert lines_of(grid, width=34) == [
        "run            state      reward", "my-agent-9c4e  completed  0.90"
    ]  # fmt: skip


NAMES = ("run", "kind", "state", "progress", "reward", "time", "started")
OPTIONAL = ("started", "kind", "reward", "time", "progress")


@given(st.lists(st.lists(st.text("x", max_size=30), min_size=7, max_size=7), min_size=1),
       st.integers(1, 200))  # fmt: skip
def test_columns_are_left_out_until_the_rest_fits_but_none_that_is_needed(
    cells: list[list[str]], width: int
) -> None:
    chosen = fitting(Grid(NAMES, [tuple(row) for row in cells], NAMES, OPTIONAL), width)
    assert {"run", "state"} <= set(chosen.heads)
    assert chosen.heads == tuple(name for name in NAMES if name in chosen.heads)
    columns = zip(chosen.heads, *chosen.rows, strict=True)
    needed = sum(max(map(len, column)) + 2 for column in columns) - 2
    assert needed <= width or set(chosen.heads) == {"run", "state"}
