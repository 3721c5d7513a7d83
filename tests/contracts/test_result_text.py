"""The tables and sentences of a result are the same on a terminal and in a card."""

from __future__ import annotations

from typing import Any

from sparring.contracts.result_text import (
    Grid,
    artefact_grid,
    difference_grid,
    markdown_table,
    markdown_text,
    proof_basis,
)
from sparring.contracts.summaries import ArtefactRow, ProveSummary
from tests.summaries import complete

DIFFERENCE = {
    "before": 0.25, "after": 0.75, "value": 0.5, "low": 0.31, "high": 0.69, "cases": 24,
    "differing": 12, "smallest_effect": 0.2,
}  # fmt: skip


def proof(**given: Any) -> ProveSummary:
    summary = {"verdict": "better", "cases": 24, "reward": DIFFERENCE, **given}
    return complete(ProveSummary, summary)


def test_a_table_in_markdown_escapes_its_cells() -> None:
    table = markdown_table(Grid(("a", "b"), [("x|y", "*z*")]))
    assert table == "| a | b |\n| --- | --- |\n| x\\|y | \\*z\\* |"
    assert markdown_text("one\ntwo\x1b\u202e") == "one two\\x1b\\x202e"


def test_a_table_without_a_column_keeps_the_others() -> None:
    grid = Grid(("a", "b", "c"), [("1", "2", "3")], texts=("a",), optional=("b",))
    assert (grid.without("b").heads, grid.without("b").rows) == (("a", "c"), [("1", "3")])
    assert grid.without("b").texts == ("a",)


def test_differences_name_guards_and_the_second_suite() -> None:
    guard = {**DIFFERENCE, "is_guard": True}
    grid = difference_grid(proof(measures={"polite": guard}, also=DIFFERENCE, also_environment="b"))
    assert [row[0] for row in grid.rows] == ["reward", "polite (guard)", "b (second suite)"]
    assert grid.rows[0][1:] == ("0.250", "0.750", "+0.500", "+0.310 … +0.690", "24")


def test_the_basis_of_a_proof_names_no_local_folder() -> None:
    played = {"model": "/home/me/models/base", "checkpoint": "/home/me/runs/a/step-4"}
    first, *_ = proof_basis(proof(**played, training="a-1", split="held-out", rollouts_per_case=4))
    assert first == (
        "The base model (base) and the trained one (a-1, step-4) played the same 24 held-out "
        "cases, 4 rollouts each, at temperature 0."
    )


def test_only_a_proof_that_shows_nothing_says_what_it_could_have_shown() -> None:
    assert "12 of 24 cases came out differently." in proof_basis(proof())
    (line,) = [line for line in proof_basis(proof(verdict="not shown")) if "differently" in line]
    assert line.endswith("; these cases rarely show a difference below 0.200.")


def test_a_file_that_nothing_has_played_has_no_figures() -> None:
    row = complete(ArtefactRow, {"path": "merged", "size": 4_000_000, "server": "transformers"})
    assert artefact_grid([row]).rows == [("merged", "4.0", "–", "–", "–", "transformers")]
