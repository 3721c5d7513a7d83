"""A shipment of a proved model: verified by its real servers, killed anywhere, never half there."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.cases import Split
from sparring.contracts.errors import FaultyArtefact, InvalidInput, NotEnoughSpace
from sparring.contracts.kinds import Form, ShipSpec
from sparring.jobs.ship import handing_over, verifying
from sparring.jobs.ship.job import ShipJob
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json, read_lines
from sparring.shipping import artefacts
from sparring.shipping.folder import ShipFolder, verify_folder_digests
from sparring.shipping.llama_cpp import find_llama_cpp, served
from sparring.suites import Suite
from tests.jobs.ship.made import PROOF, RUN, new_shipment, ship_spec, shipped
from tests.shipping.made import has_server

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not has_server(), reason="no llama.cpp server is installed"),
]


@pytest.fixture(scope="module")
def delivered(proved: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("delivered") / "porter"
    spec = ship_spec(proved, place, forms=(Form.MERGED, Form.GGUF, Form.OLLAMA))
    return shipped(new_shipment(proved, "0001", spec))


def test_a_proved_model_is_shipped_with_its_improvement(
    delivered: dict[str, Any], proved: Path
) -> None:
    assert read_json(proved / PROOF / "report" / "summary.json")["verdict"] == "better"
    written = f"2 forms of the model written to {delivered['to']}, each verified"
    assert (delivered["verdict"], delivered["sentence"]) == ("shipped", written)
    assert delivered["is_fine"]
    assert delivered["comparison"] in (Path(delivered["to"]) / "README.md").read_text()
    held_out = delivered["held_out"]
    assert held_out["artefact"] == "gguf q8_0"
    assert held_out["is_improved"]
    assert held_out["base"]["after"] > held_out["base"]["before"] + 0.3
    assert held_out["parse_rate"] > 0.9
    for row in delivered["artefacts"]:
        assert row["prompts"]["conversations"] >= 40
        assert row["validation"]["likeness"] in ("equal", "cannot tell")


def test_the_folder_is_complete_and_names_no_place_on_this_machine(
    delivered: dict[str, Any], proved: Path
) -> None:
    place = Path(delivered["to"])
    assert verify_folder_digests(place) == []
    names = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    assert {
        "README.md", "proof_card.md", "how_to_run.md", "agent.json", "ship.json",
        "chat_template.jinja", "merged/model.safetensors", "merged/generation_config.json",
        "gguf/porter-q8_0.gguf", "gguf/Modelfile",
    } <= names  # fmt: skip
    for name in names:
        content = (place / name).read_bytes()
        assert str(proved.parent).encode() not in content, name
        assert b"/root/" not in content or name.endswith(".gguf"), name
    assert not list(place.parent.glob(".*"))


def test_agent_json_has_the_agent_as_it_was_trained(delivered: dict[str, Any]) -> None:
    content = json.loads((Path(delivered["to"]) / "agent.json").read_text())
    (agent,) = content["agents"]
    assert agent["instructions"] == "Let them in."
    assert [tool["function"]["name"] for tool in agent["tools"]] == ["ring", "knock"]


def test_the_look_at_held_out_cases_is_counted_once(
    delivered: dict[str, Any], proved: Path
) -> None:
    looks = list(read_lines(RunFolder(proved / RUN).proofs))
    mine = [row for row in looks if row["run"] == delivered["run"]]
    assert len(mine) == 1
    assert mine[0]["candidate"].startswith(f"{RUN}/step-2#")


async def ask_all(agent: Any, names: Sequence[str]) -> list[Any]:
    from agents import RunConfig, Runner

    config = RunConfig(tracing_disabled=True)
    return [await Runner.run(agent, f"hello {name}", run_config=config) for name in names]


@pytest.mark.nightly
def test_an_agent_pointed_at_the_server_by_the_printed_lines_does_the_task(
    delivered: dict[str, Any], proved: Path, tmp_path: Path
) -> None:
    import asyncio

    from agents import OpenAIChatCompletionsModel
    from openai import AsyncOpenAI

    from sparring.environments import load_environment

    place = Path(delivered["to"])
    lines = delivered["agent_lines"]
    assert lines in (place / "how_to_run.md").read_text()
    agent = load_environment(f"{proved.parent / 'bell.py'}:Bell").agent()
    gguf = place / "gguf" / "porter-q8_0.gguf"
    with served(find_llama_cpp(), gguf, tmp_path / "log", context=2048) as server:
        lines = lines.replace("http://127.0.0.1:8080/v1", server.base_url)
        names: dict[str, Any] = {
            "agent": agent,
            "AsyncOpenAI": AsyncOpenAI,
            "OpenAIChatCompletionsModel": OpenAIChatCompletionsModel,
        }
        exec(lines, names)
        results = asyncio.run(ask_all(names["agent"], ("Ada", "Ben", "Cleo")))
    called = [any(item.type == "tool_call_item" for item in each.new_items) for each in results]
    assert sum(called) >= 2
    assert [each.final_output.strip() for each in results].count("done") >= 2


# ---------------------------------------------------------------------- killed and resumed

STAGES = (
    "preparing", "playing the checkpoint", "writing", "half of a file", "verifying", "comparing",
    "playing", "publishing", "half of the cards", "sealing", "sealed",
)  # fmt: skip


def attempt(folder: RunFolder, spec: ShipSpec, stage: str) -> None:
    """One attempt that is killed at a stage."""

    def kill(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def reach(self: ShipJob, name: str) -> None:
        if name == stage:
            kill()

    def write_half(_: Path, path: Path, *__: Any) -> None:
        path.write_bytes(b"GGUF" * 1000)
        kill()

    ShipJob._stage = reach  # type: ignore[method-assign]
    if stage == "half of a file":
        artefacts.write_gguf = write_half
    if stage == "half of the cards":
        handing_over.proof_card = kill
    seal = ShipFolder.seal

    def sealed(self: ShipFolder, facts: dict[str, Any]) -> Path:
        if stage == "sealing":
            Path.rename = kill  # type: ignore[assignment, method-assign]
        place = seal(self, facts)
        if stage == "sealed":
            kill()
        return place

    ShipFolder.seal = sealed  # type: ignore[method-assign]
    shipped(folder)


@pytest.mark.nightly
def test_a_shipment_killed_at_any_stage_resumes_and_leaves_no_partial_folder(
    proved: Path, tmp_path: Path
) -> None:
    place = tmp_path / "out" / "porter"
    spec = ship_spec(proved, place, cases=8, validation_cases=2)
    folder = new_shipment(proved, "dead", spec)
    context = multiprocessing.get_context("fork")
    for stage in STAGES:
        child = context.Process(target=attempt, args=(folder, spec, stage))
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL, stage
        assert place.exists() == (stage == "sealed"), stage
        if place.exists():
            assert verify_folder_digests(place) == []
        assert not folder.summary.exists()
    summary = shipped(folder)
    assert summary["to"] == str(place)
    assert verify_folder_digests(place) == []
    assert [path.name for path in place.parent.iterdir()] == ["porter"]
    assert len([row for row in read_lines(folder.events) if row["event"] == "looked"]) == 1


@pytest.mark.nightly
def test_a_delivered_folder_stays_as_it_is_when_its_shipment_resumes(
    proved: Path, tmp_path: Path
) -> None:
    """Without the merged form, the merged model is written for the GGUF file only."""
    spec = ship_spec(proved, tmp_path / "porter", forms=(Form.GGUF,), cases=0, validation_cases=2)
    folder = new_shipment(proved, "once", spec)
    shipped(folder)
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "porter").rglob("*")}
    shipped(folder)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "porter").rglob("*")} == files
    assert verify_folder_digests(tmp_path / "porter") == []
    assert [path.name for path in tmp_path.iterdir()] == ["porter"]


@pytest.mark.parametrize("changes", [{"validation_cases": 0}, {}])
@pytest.mark.nightly
def test_a_suite_without_enough_validation_cases_is_shipped(
    proved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    size = Suite.size
    monkeypatch.setattr(
        Suite, "size", lambda self, split: 3 if split is Split.VALIDATION else size(self, split)
    )
    given = {"forms": (Form.MERGED,), "cases": 0, **changes}
    spec = ship_spec(proved, tmp_path / "porter", **given)
    summary = shipped(new_shipment(proved, f"few{len(changes)}", spec))
    assert "validation" not in summary["artefacts"][0]
    assert verify_folder_digests(tmp_path / "porter") == []


# ---------------------------------------------------------------------- refusals


def test_a_faulty_artefact_is_named_and_no_folder_is_written(
    proved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: Any, **__: Any) -> dict[str, Any]:
        raise FaultyArtefact("the training is lost")

    monkeypatch.setattr(verifying, "verify_folder", lose)
    spec = ship_spec(proved, tmp_path / "porter", forms=(Form.MERGED,), validation_cases=1)
    summary = shipped(new_shipment(proved, "bad1", spec))
    assert summary["verdict"] == "refused"
    assert summary["problem"] == "merged: the training is lost"
    assert not summary["is_fine"]
    assert summary["to"] == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_an_existing_folder_a_read_only_one_and_a_full_disk_are_refused(
    proved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    spec = ship_spec(proved, tmp_path / "there", validation_cases=1)
    with pytest.raises(InvalidInput, match="exists already, and a shipment never overwrites"):
        shipped(new_shipment(proved, "bad2", spec))
    spec = ship_spec(proved, Path("/proc/1/porter"), validation_cases=1)
    with pytest.raises(InvalidInput, match="cannot be written"):
        shipped(new_shipment(proved, "bad3", spec))
    usage = type("Usage", (), {"free": 1000})()
    monkeypatch.setattr("sparring.shipping.folder.shutil.disk_usage", lambda _: usage)
    spec = ship_spec(proved, tmp_path / "porter", validation_cases=1)
    with pytest.raises(NotEnoughSpace, match="GB free, and the shipment needs"):
        shipped(new_shipment(proved, "bad4", spec))


@pytest.mark.nightly
def test_a_model_that_has_no_gguf_form_is_shipped_in_the_others_with_a_warning(
    proved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artefacts, "gguf_problem", lambda _: "this model is a MambaForCausalLM")
    monkeypatch.delenv("LLAMA_CPP_PATH", raising=False)  # its converter would write the form
    spec = ship_spec(proved, tmp_path / "porter", cases=0, validation_cases=1)
    summary = shipped(new_shipment(proved, "arch", spec))
    assert [row["name"] for row in summary["artefacts"]] == ["merged"]
    assert summary["warnings"] == ["gguf was left out: this model is a MambaForCausalLM"]
    assert "gguf was left out" in (tmp_path / "porter" / "proof_card.md").read_text()
    assert verify_folder_digests(tmp_path / "porter") == []


def test_a_trial_plays_and_leaves_no_folder(proved: Path, tmp_path: Path) -> None:
    forms = (Form.GGUF,)
    spec = ship_spec(proved, tmp_path / "porter", forms=forms, cases=0, validation_cases=2)
    spec = spec.model_copy(update={"trial": True})
    folder = new_shipment(proved, "tria", spec)
    summary = shipped(folder)
    assert summary["verdict"] == "tried"
    assert summary["artefacts"][0]["validation"]["rollouts"] == 2
    assert (summary["to"], summary["commands"]) == ("", {})
    assert list(tmp_path.iterdir()) == []
    assert not list(folder.path.rglob("*.gguf"))


@pytest.mark.nightly
def test_python_ships_a_training_of_an_environment(proved: Path, tmp_path: Path) -> None:
    from sparring import ship

    result = ship(
        RUN, tmp_path / "porter", runs=proved, forms=["merged"], validation_cases=2, name="porter",
        cases=2,
    )  # fmt: skip
    assert result.verdict == "shipped"
    assert verify_folder_digests(result.path) == []
    assert "Unproven" not in (result.path / "proof_card.md").read_text()


@pytest.mark.parametrize(
    ("options", "players"),
    [
        ({}, 5),
        ({"forms": (Form.ADAPTER, Form.MERGED, Form.GGUF)}, 5),
        ({"forms": (Form.MERGED,)}, 3),
        ({"vllm": True}, 7),
        ({"forms": (Form.OLLAMA,), "register_with_ollama": True}, 4),
    ],
)
def test_the_time_left_counts_every_server_that_plays(
    options: dict[str, Any], players: int
) -> None:
    assert (
        ShipSpec.model_construct(quantizations=("q8_0",), **options).max_validation_plays == players
    )
