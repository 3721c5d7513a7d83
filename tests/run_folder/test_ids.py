"""Ids of runs, and their short forms."""

from __future__ import annotations

import pytest

from sparring.run_folder.ids import new_run_id, short_id


@pytest.mark.parametrize(
    ("run", "short"),
    [
        (new_run_id("my_agent", 0, "605c"), "605c"),
        (f"proof-{new_run_id('my_agent', 0, '605c')}", "proof-605c"),
        ("a-name-of-the-users", "a-name-of-the-users"),
    ],
)
def test_the_last_letters_of_an_id_stand_for_it(run, short):
    assert short_id(run) == short
