"""Specs: what every kind of run has in common, and what must not be written to disk."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput
from sparring.contracts.specs import (
    EndpointSpec,
    EvalSpec,
    Limits,
    PlaySettings,
    PolicySpec,
    RunSpec,
    Service,
    agent_of_target,
    is_python_target,
    python_target,
)


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


def test_limits_by_tool_are_not_shared_and_no_limit_can_be_changed() -> None:
    assert Limits().tool_concurrency_by_name is not Limits().tool_concurrency_by_name
    with pytest.raises(FrozenInstanceError):
        Limits().max_turns = 10  # type: ignore[misc]


@settings(max_examples=30)
@given(st.text(max_size=8))
def test_the_agent_of_a_run_from_python_is_found_in_its_target(name: str) -> None:
    target = python_target(name)
    assert is_python_target(target)
    assert agent_of_target(target) == name
    assert RunSpec(kind="x", target=target).is_from_python


def test_a_run_of_a_file_is_not_from_python() -> None:
    assert not RunSpec(kind="x", target="python.py:Python").is_from_python


@pytest.mark.parametrize("url", ["https://key@host/v1", "http://user:key@host:80", "//key@host"])
def test_an_address_with_a_key_is_refused_with_the_way_out(url: str) -> None:
    with pytest.raises(ValidationError, match="set key_variable instead"):
        EndpointSpec(base_url=url, model="m")


@pytest.mark.parametrize("url", ["https://host/v1", "http://localhost:80/@team/v1"])
def test_an_address_without_a_key_is_kept_as_it_is(url: str) -> None:
    assert EndpointSpec(base_url=url, model="m").base_url == url


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("https://api.openai.com/v1", "OPENAI_API_KEY"),
        ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        ("http://api.openai.com/v1", None),  # not encrypted
        ("https://api.openai.com.example/v1", None),
        ("https://example/api.openai.com", None),
        ("http://127.0.0.1:8000/v1", None),
        ("https://[", None),
    ],
)
def test_a_key_that_nobody_named_goes_to_its_own_server_only(url: str, variable: str) -> None:
    assert EndpointSpec(base_url=url, model="m").key_variable == variable


def test_a_named_key_goes_to_any_server() -> None:
    spec = EndpointSpec(base_url="http://127.0.0.1/v1", model="m", key_variable="OPENAI_API_KEY")
    assert spec.key_variable == "OPENAI_API_KEY"


@pytest.mark.parametrize("field", ["temperature", "tool_timeout", "rollout_timeout"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1])
def test_a_setting_of_play_must_be_a_finite_number_in_its_range(field: str, value: float) -> None:
    with pytest.raises(ValidationError, match=field):
        PlaySettings.model_validate({field: value})


def test_the_limits_of_the_player_are_those_that_were_set() -> None:
    play = PlaySettings(
        max_concurrency=3,
        max_turns=3,
        max_completion_length=77,
        rollout_timeout=4.0,
        tool_timeout=1.5,
    )
    assert play.limits() == Limits(
        max_concurrency=3, max_turns=3, completion_tokens=77, rollout_timeout=4.0, tool_timeout=1.5
    )


def test_the_defaults_of_play_are_the_defaults_of_the_player() -> None:
    assert PlaySettings().limits() == Limits()


def test_an_evaluation_is_limited_only_by_its_number_of_cases() -> None:
    play = PlaySettings(num_generations=3)
    assert EvalSpec(target="t", play=play).max_rollouts is None
    assert EvalSpec(target="t", play=play, cases=5).max_rollouts == 15
    assert EvalSpec(target="t").optimizer_steps == 0


def test_a_spec_survives_being_written_and_read() -> None:
    spec = EvalSpec(
        target="shop.py:Shop",
        config={"size": [1, {"a": None}]},
        policy=PolicySpec(
            kind="endpoint", endpoints=(EndpointSpec(base_url="http://x/v1", model="m"),)
        ),
        services=(Service("db", ["serve", "{port}"], ready_line="up"),),
        split=Split.HELD_OUT,
        cases=3,
        measures={"exact": 1.0},
    )
    assert EvalSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"cases": 0}, "cases\n  Input should be greater than or equal to 1"),
        ({"hours": 0}, "hours\n  Input should be greater than 0"),
        ({"kind": "train"}, "kind\n  Input should be 'eval'"),
        ({"spilt": "training"}, "spilt\n  Extra inputs are not permitted"),
        ({"play": {"seeds": 1}}, "play.seeds\n  Extra inputs are not permitted"),
        ({"supervision": {"restarts": -1}}, "supervision.restarts\n"),
    ],
)
def test_a_field_that_is_unknown_or_out_of_range_is_refused_by_its_name(
    fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        EvalSpec.model_validate({"target": "t", **fields})
    assert problem in str(refused.value)


def test_a_spec_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        EvalSpec(target="t").cases = 5  # type: ignore[misc]
