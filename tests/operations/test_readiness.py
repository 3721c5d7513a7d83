"""A run that this machine cannot start is refused before it exists."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput, MissingPackage
from sparring.contracts.kinds import CheckSpec, ProveSpec
from sparring.contracts.specs import EndpointSpec, EvalSpec, PolicySpec, RunSpec, Supervision
from sparring.contracts.training import TrainSpec
from sparring.operations.readiness import refuse_unready

OPENAI = EndpointSpec(base_url="https://api.openai.com/v1", model="gpt-9")
SERVED = PolicySpec(kind="endpoint", model="gpt-9", endpoints=(OPENAI,))


@pytest.fixture
def _without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.fixture
def _without_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY_FILE", raising=False)


def made(kind: type[RunSpec], **fields: Any) -> RunSpec:
    return kind.model_validate({"target": "shop.py:Shop", **fields})


@pytest.mark.usefixtures("_without_torch")
@pytest.mark.parametrize(
    "spec", [made(TrainSpec), made(CheckSpec), made(EvalSpec), made(ProveSpec, run="r")]
)
def test_a_run_without_its_packages_is_refused(spec: RunSpec) -> None:
    with pytest.raises(MissingPackage, match=rf"^`{spec.kind}` needs the extra .*pip install "):
        refuse_unready(spec)


@pytest.mark.usefixtures("_without_torch")
def test_an_evaluation_by_a_server_needs_no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    refuse_unready(made(EvalSpec, policy=SERVED))


@pytest.mark.usefixtures("_without_torch", "_without_key")
def test_packages_and_keys_of_other_hosts_are_not_looked_for_here() -> None:
    slurm = Supervision(launcher="slurm")
    refuse_unready(made(TrainSpec, supervision=slurm))
    refuse_unready(made(EvalSpec, policy=SERVED, supervision=slurm))


@pytest.mark.usefixtures("_without_key")
@pytest.mark.parametrize(
    "spec", [made(EvalSpec, policy=SERVED), made(CheckSpec, others=[OPENAI.model_dump()])]
)
def test_a_server_without_its_key_is_refused(spec: RunSpec) -> None:
    with pytest.raises(InvalidInput, match=r"requires a key: set OPENAI_API_KEY"):
        refuse_unready(spec)
