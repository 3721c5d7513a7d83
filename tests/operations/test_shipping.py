"""Who may ship what, where to, and only what is proved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput, NotPermitted, NotProved
from sparring.contracts.kinds import Form, ShipSpec
from sparring.contracts.summaries import ProveSummary
from sparring.operations.operation import Caller, Role
from sparring.operations.shipping import StartShip, start_ship
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_state
from sparring.run_folder.files import read_json, write_json
from tests.operations.test_proving import DONE, operator, owner, spec_of, trained
from tests.summaries import completed

__all__ = ["operator", "owner"]  # fixtures


def proved(caller: Caller, verdict: str = "better", **given: Any) -> str:
    """A training run with a proof of this verdict."""
    run, proof = trained(caller, *DONE, **given)
    folder = RunFolder(caller.runs / proof)
    message = {"run": proof, "verdict": verdict, "split": "held-out"}
    summary = {**message, "checkpoint": "/x/checkpoints/step-5"}
    write_json(folder.summary, completed(ProveSummary, summary))
    for state in DONE:
        append_state(folder, state, author="supervisor", epoch=1)
    return run


def test_a_proved_training_is_shipped_as_it_was_proved(owner: Caller) -> None:
    run = proved(owner)
    started = start_ship(StartShip(run=run, to="model", quantizations=("q8_0", "f16")), owner)
    spec = ShipSpec.model_validate(spec_of(owner, started.run))
    assert started.run.startswith("ship-shop-")
    assert (spec.run, spec.proof, spec.checkpoint) == (run, f"proof-{run}", "step-5")
    assert spec.play.max_completion_length == 77
    assert spec.to == str(owner.folder.resolve() / "model")
    assert spec.quantizations == ("q8_0", "f16")


def test_folders_are_those_of_the_caller_wherever_the_shipment_resumes(owner: Caller) -> None:
    request = StartShip(run=proved(owner), to="model", llama_cpp="tools/llama")
    spec = spec_of(owner, start_ship(request, owner).run)
    assert spec["llama_cpp"] == str(owner.folder.resolve() / "tools" / "llama")


def test_the_folder_has_a_default_in_the_project(owner: Caller) -> None:
    run = proved(owner)
    spec = spec_of(owner, start_ship(StartShip(run=run), owner).run)
    assert Path(spec["to"]) == owner.folder.resolve() / "shipped" / f"shop-{run[-4:]}"


def test_without_a_proof_that_says_better_nothing_is_shipped_unless_it_is_wanted(
    owner: Caller,
) -> None:
    run = proved(owner, "not shown")
    with pytest.raises(NotProved, match=r'on step-. is "not shown"'):
        start_ship(StartShip(run=run), owner)
    spec = spec_of(owner, start_ship(StartShip(run=run, unproven=True), owner).run)
    assert spec["proof"] == f"proof-{run}"
    bare, _ = trained(owner, *DONE, prove=False)
    with pytest.raises(NotProved, match="has no proof; run `sparring prove"):
        start_ship(StartShip(run=bare), owner)
    spec = spec_of(owner, start_ship(StartShip(run=bare, unproven=True), owner).run)
    assert spec["proof"] == ""


def test_a_training_whose_proof_has_not_ended_is_shipped_later(owner: Caller) -> None:
    run, proof = trained(owner, *DONE)
    with pytest.raises(NotProved, match=f"its proof {proof} is queued. `sparring run wait"):
        start_ship(StartShip(run=run), owner)


def test_the_proof_must_be_of_the_checkpoint(owner: Caller) -> None:
    run = proved(owner)
    with pytest.raises(NotProved, match="the step-3 checkpoint"):
        start_ship(StartShip(run=run, checkpoint="step-3"), owner)


def test_an_existing_folder_is_refused_before_a_run_is_created(owner: Caller) -> None:
    run = proved(owner)
    (owner.folder / "model").mkdir()
    with pytest.raises(InvalidInput, match="never overwrites"):
        start_ship(StartShip(run=run, to="model"), owner)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"quantizations": ("q9_9",)}, "unknown quantisation 'q9_9'; choose from f32"),
        ({"upload": True}, "--upload needs --hub"),
        ({"name": "a/b"}, "a model's name consists of"),
        ({"register_with_ollama": True}, "--register needs --form ollama"),
    ],
)
def test_options_of_a_shipment_that_contradict_each_other_are_refused(
    owner: Caller, given: Any, named: str
) -> None:
    with pytest.raises(InvalidInput, match=named):
        start_ship(StartShip(run=proved(owner), **given), owner)


def test_an_adapter_of_a_4_bit_base_is_shipped_merged_and_not_by_itself(owner: Caller) -> None:
    run = proved(owner)
    folder = RunFolder(owner.runs / run)
    spec = read_json(folder.spec)
    spec["settings"] |= {"quantization": True, "lora": {}}
    write_json(folder.spec, spec)
    with pytest.raises(InvalidInput, match=r"trained on a 4-bit base .* --form merged,gguf"):
        start_ship(StartShip(run=run, forms=(Form.ADAPTER, Form.GGUF)), owner)
    start_ship(StartShip(run=run), owner)


def test_operators_ship_their_own_runs_and_nothing_leaves_the_machine(
    owner: Caller, operator: Caller
) -> None:
    run = proved(owner)
    with pytest.raises(NotPermitted, match="ships only its own runs"):
        start_ship(StartShip(run=run), operator)
    for given in ({"hub": "me/x"}, {"llama_cpp": "/opt"}, {"register_with_ollama": True}):
        with pytest.raises(NotPermitted, match="only the owner may upload"):
            start_ship(StartShip(run=run, **given), operator)
    with pytest.raises(NotPermitted, match="operators give a name"):
        start_ship(StartShip(run=run, to="../elsewhere"), operator)
    assert Role.OPERATOR < Role.OWNER
