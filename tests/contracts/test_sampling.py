"""The settings of sampling servers: short forms, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sparring.contracts.specs import PolicySpec
from sparring.contracts.training import TrainSettings, TrainSpec


@pytest.mark.parametrize(
    ("given", "servers", "started"),
    [
        (2, 2, 2),
        ("2", 2, 2),
        ("http://a:1", ("http://a:1",), 0),
        ("http://a:1, http://b:2", ("http://a:1", "http://b:2"), 0),
        (["http://a:1"], ("http://a:1",), 0),
        ({"servers": 3, "wait_seconds": 5}, 3, 3),
        ("joined", "joined", 0),
        ({"servers": "joined"}, "joined", 0),
    ],
)
def test_short_forms_stand_for_a_table(given: Any, servers: Any, started: int) -> None:
    sampling = TrainSettings(sampling=given).sampling
    assert sampling is not None
    assert (sampling.servers, sampling.number_started) == (servers, started)
    assert sampling.least_servers == (len(servers) if isinstance(servers, tuple) else started or 1)


@pytest.mark.parametrize(
    "given",
    [0, True, "host:1", "ftp://a:1", ["http://a:1", "http://a:1"], [], "http://key@a:1"],
)
def test_what_cannot_be_a_server_is_refused(given: Any) -> None:
    with pytest.raises(ValidationError):
        TrainSettings(sampling=given)


def test_servers_do_not_sample_from_a_quantized_base() -> None:
    assert TrainSettings(sampling=1, lora=True).sampling
    with pytest.raises(ValidationError, match="load the base without quantization"):
        TrainSettings(sampling=1, lora=True, quantization=True)


def test_several_hosts_need_servers_that_all_of_them_reach() -> None:
    spec: dict[str, Any] = {"target": "x.py:X", "policy": PolicySpec(model="tiny"), "nodes": 2}
    spec["rendezvous"] = "a:1"
    with pytest.raises(ValidationError, match="give their addresses"):
        TrainSpec(**spec, settings=TrainSettings(sampling=2))
    TrainSpec(**spec, settings=TrainSettings(sampling="http://a:1"))
