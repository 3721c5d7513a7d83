"""Refused settings: what they advise can be followed."""

from __future__ import annotations

import re

import pytest

from sparring.contracts.refused_settings import OURS, is_never_the_engines
from sparring.contracts.specs import Supervision
from sparring.contracts.training import TrainSettings

SETTINGS = {*TrainSettings.model_fields, *Supervision.model_fields}
IN_PYTHON = {"context", "result", "rollout_function", "show_progress", "weights"}


def test_no_setting_of_ours_is_refused() -> None:
    assert not SETTINGS & set(OURS)


@pytest.mark.parametrize("name", sorted(OURS))
def test_the_setting_to_use_instead_exists(name: str) -> None:
    assert OURS[name].strip()
    for advised in re.findall(r"\buse ([a-z_]+)", OURS[name]):
        assert advised in SETTINGS | IN_PYTHON


@pytest.mark.parametrize(
    "name", ["save_strategy", "use_vllm", "save_what_comes", "eval_x", "hub_y"]
)
def test_a_field_with_another_name_here_or_of_saving_evaluating_and_the_hub_is_refused(
    name: str,
) -> None:
    assert is_never_the_engines(name)


@pytest.mark.parametrize("name", ["num_iterations", "epsilon", "presave_x", "hub", ""])
def test_a_field_that_is_not_in_the_table_is_left_to_the_engine(name: str) -> None:
    assert not is_never_the_engines(name)
