"""An environment is opened with its sandbox decided and its services running, or it is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput, ServiceFailed
from sparring.contracts.specs import EvalSpec, PlaySettings, Supervision
from sparring.contracts.training import TrainSpec
from sparring.jobs import environment_opening
from sparring.jobs.environment_opening import opened, opened_without_run
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json, read_lines, write_json
from sparring.run_folder.layout import CASES

SHOP = """
import os
import sys

from sparring import Environment
from sparring.contracts.specs import Service

os.write(1, b"a case is quoted\\n")


class Plain(Environment):
    class Config(Environment.Config):
        size: int = 2


class Coder(Environment):
    needs_sandbox = True


class Served(Environment):
    services = (
        Service("base", [sys.executable, "-c", "print('up', flush=True); input()"]),
        Service("other", [sys.executable, "-c", "print('up', flush=True); input()"]),
    )


class Waiting(Environment):
    services = (
        Service(
            "base",
            [sys.executable, "-Sc", "import time; print('up', flush=True); time.sleep(60)"],
            ready_line="up",
        ),
    )
"""
ADDRESSES = {"base": "127.0.0.1:5001", "other": "127.0.0.1:5002"}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "shop.py").write_text(SHOP)
    made = RunFolder(tmp_path / "run")
    made.create({"format": 1, "kind": "eval"})
    return made


def opening(folder: RunFolder, name: str, config: dict[str, Any] | None = None, **how: Any) -> Any:
    target = f"{folder.path.parent / 'shop.py'}:{name}"
    play = PlaySettings(unsandboxed=how.pop("is_unsandboxed", False))
    spec = EvalSpec(target=target, config=config or {}, play=play)
    return opened(folder, how.pop("spec", spec), **how)


def warnings(folder: RunFolder) -> list[str]:
    return [each["message"] for each in read_lines(folder.events) if each["event"] == "warning"]


def test_an_environment_has_the_config_that_it_is_opened_with(folder: RunFolder) -> None:
    with opening(folder, "Plain", {"size": 5}) as environment:
        assert environment.config.size == 5
        assert not environment.is_unsandboxed
    assert warnings(folder) == []


def test_code_without_a_sandbox_is_a_warning_of_rank_0(folder: RunFolder) -> None:
    for rank in (0, 1):
        with opening(folder, "Coder", is_unsandboxed=True, rank=rank) as environment:
            assert environment.is_unsandboxed
    assert warnings(folder) == [
        "code that the model wrote runs without a sandbox (unsandboxed=true)"
    ]


def test_an_environment_that_needs_a_sandbox_is_refused_where_there_is_none(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Missing:
        def require(self) -> None:
            raise InvalidInput("there is no bubblewrap")

    monkeypatch.setattr(environment_opening, "probe", Missing)
    with pytest.raises(InvalidInput, match="no bubblewrap"), opening(folder, "Coder"):
        pass
    with opening(folder, "Plain"):
        pass


def test_services_are_refused_where_other_hosts_could_not_reach_them(folder: RunFolder) -> None:
    target = f"{folder.path.parent / 'shop.py'}:Served"
    two_hosts = TrainSpec(target=target, nodes=2, supervision=Supervision(launcher="slurm"))
    with (
        pytest.raises(InvalidInput, match="train on one host, or start the services yourself"),
        opening(folder, "Served", spec=two_hosts),
    ):
        pass


def test_services_of_the_supervisor_are_reused(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARRING_ATTEMPT", "3")
    write_json(folder.services, {"format": 1, "attempt": 3, "addresses": ADDRESSES})
    before = folder.services.read_bytes()
    with opening(folder, "Served") as environment:
        assert environment.addresses == ADDRESSES
    assert folder.services.read_bytes() == before


def test_a_missing_service_is_started_and_its_address_written_for_the_other_ranks(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARRING_ATTEMPT", "1")
    monkeypatch.setattr(environment_opening, "_WAIT_FOR_RANK_0_SECONDS", 1.0)
    with opening(folder, "Waiting") as environment:
        address = environment.address("base")
        written = read_json(folder.services)
        assert (written["attempt"], written["addresses"]) == (1, {"base": address})
        with opening(folder, "Waiting", rank=1) as other:
            assert other.address("base") == address


def test_another_rank_gives_up_on_services_of_an_earlier_attempt(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment_opening, "_WAIT_FOR_RANK_0_SECONDS", 0.01)
    monkeypatch.setenv("SPARRING_ATTEMPT", "3")
    write_json(folder.services, {"format": 1, "attempt": 2, "addresses": ADDRESSES})
    with (
        pytest.raises(ServiceFailed, match="rank 0 has not started the services within"),
        opening(folder, "Served", rank=1),
    ):
        pass


def test_output_of_a_supervised_environment_goes_to_the_log_of_cases(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARRING_ATTEMPT", "1")
    with opening(folder, "Plain"):
        os.write(1, b"shown again\n")
    assert "a case is quoted" in folder.log(1, CASES).read_text()
    assert capfd.readouterr().out == "shown again\n"


def test_outside_a_run_nothing_is_left_behind(folder: RunFolder) -> None:
    target = f"{folder.path.parent / 'shop.py'}:Coder"
    before = set(folder.path.parent.rglob("*.json*"))
    with opened_without_run(target, {}, is_unsandboxed=True) as environment:
        assert environment.is_unsandboxed
    assert set(folder.path.parent.rglob("*.json*")) == before
