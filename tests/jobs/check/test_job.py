"""The verdict of a check on environments whose answer is known, each with the finding that says
why; and what other models do behind servers that hang and break."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.kinds import CheckSpec
from sparring.contracts.specs import COMMAND, EndpointSpec, PolicySpec, Supervision
from sparring.contracts.training import TrainSettings
from sparring.jobs.check.play import CheckPlay
from sparring.jobs.worker import Heartbeat
from sparring.learning.drawing import Drawn
from sparring.learning.groups import StepRollouts
from sparring.learning.step import Steps
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json
from sparring.suites import Suite
from tests.jobs.run_here import run_here
from tests.servers import ChatServer, completion

MADE_UP = f"{Path(__file__).parents[1]}/made_up.py"


def checked(place: Path, tiny: Path, name: str, **given: Any) -> dict[str, Any]:
    heartbeat = given.pop("heartbeat", Heartbeat)
    settings = {"max_completion_length": 192, **given.pop("settings", {})}
    folder_name = given.pop("folder", name)
    spec = CheckSpec(
        target=f"{MADE_UP}:{name}",
        environment=name,
        policy=PolicySpec(model=str(tiny)),
        settings=TrainSettings(**settings),
        cases=8,
        rollouts=8,
        **{"dry_steps": 1, **given},
    )
    folder = RunFolder(place / folder_name)
    folder.create(spec.model_dump(mode="json"))
    run_here(folder, heartbeat=heartbeat(folder, 0, None))
    return read_json(folder.summary)


KNOWN = {
    "Healthy": ("learnable", ""),
    "Halfway": ("learnable", "constant"),
    "Constant": ("constant", "constant"),
    "PassesAnything": ("constant", "constant"),
    "TooEasy": ("too easy", "too easy"),
    "TooHard": ("too hard", "too hard"),
    "Flaky": ("broken", "flaky"),
    "Exploitable": ("broken", "passed by a null player"),
    "BrokenJudge": ("broken", "unscored"),
    "Undecided": ("broken", "unscored"),
    "Truncated": ("broken", "truncated"),
    "Unparsable": ("broken", "calls cannot be read"),
    "Untrainable": ("broken", "cannot be trained"),
    "NoWorld": ("broken", "failed"),
}
QUICK = ("Healthy", "Constant", "Exploitable", "Unparsable", "Untrainable")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.nightly) for name in KNOWN],
)
def test_the_verdict_is_right_and_says_why(name: str, tmp_path: Path, tiny_folder: Path) -> None:
    verdict, finding = KNOWN[name]
    summary = checked(tmp_path, tiny_folder, name)
    assert summary["verdict"] == verdict, summary["why"]
    whats = [note["what"] for note in summary["notes"]]
    assert not finding or finding in whats, whats
    if verdict == "broken":
        assert any(note["is_grave"] and note["what"] == finding for note in summary["notes"])


DEAD = ("called_a_tool", "says_the_word", "is_an_essay", "scores_nothing", "knows")


def every_nth_now_the_rest_at_night(count: int, nth: int) -> list[Any]:
    rest = [pytest.param(each, marks=pytest.mark.nightly) for each in range(count) if each % nth]
    return [*range(0, count, nth), *rest]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", every_nth_now_the_rest_at_night(20, 12))
def test_a_measure_that_never_passes_is_the_headline_whatever_else_moves(
    number: int, tmp_path: Path, tiny_folder: Path
) -> None:
    summary = checked(tmp_path, tiny_folder, "Partly", config={"number": number}, dry_steps=0)
    dead = DEAD[number // 4]
    assert summary["verdict"] == "not as it is", summary["why"]
    assert summary["why"].startswith(f"{dead} never passes"), summary["why"]
    assert "sparring train Partly --warm-start" in summary["why"]
    if dead == "called_a_tool":
        assert "because tools are hardly ever called" in summary["why"]
    movements = {each["name"]: each["movement"] for each in summary["measures"]}
    assert movements.pop(dead) == "never passes"
    assert set(movements.values()) == {"can be learned"}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", every_nth_now_the_rest_at_night(10, 10))
def test_where_every_measure_moves_it_is_learnable(
    number: int, tmp_path: Path, tiny_folder: Path
) -> None:
    summary = checked(tmp_path, tiny_folder, "Moving", config={"number": number}, dry_steps=0)
    assert summary["verdict"] == "learnable", summary["why"]
    assert {each["movement"] for each in summary["measures"]} == {"can be learned"}


def test_a_check_that_is_stopped_says_what_it_has_seen(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CheckPlay.run

    async def and_stop(self: CheckPlay, *given: Any) -> None:
        await run(self, *given)
        del self.learner[24:]
        raise asyncio.CancelledError

    monkeypatch.setattr(CheckPlay, "run", and_stop)
    with pytest.raises(asyncio.CancelledError):
        checked(tmp_path, tiny_folder, "Healthy", dry_steps=0)
    summary = read_json(RunFolder(tmp_path / "Healthy").summary)
    assert summary["verdict"] == "learnable"
    (note,) = [each for each in summary["notes"] if each["what"] == "cut short"]
    assert note["message"] == "24 of 64 rollouts were played until the stop"
    assert note["advice"] == "`sparring run resume Healthy`"


@pytest.mark.nightly
def test_a_learnable_verdict_names_measures_that_already_pass(
    tmp_path: Path, tiny_folder: Path
) -> None:
    summary = checked(tmp_path, tiny_folder, "Halfway")
    assert summary["why"].endswith("but anything already passes (64 of 64 rollouts)")
    assert summary["cases"][0]["question"].startswith("question ")


def test_the_training_that_it_suggests_has_the_settings_of_the_command(
    tmp_path: Path, tiny_folder: Path
) -> None:
    named = ("max_steps", "lora.r", "model", "config.none", "seed", "warm_start", "restarts")
    sources = dict.fromkeys(named, COMMAND) | {"seed": "sparring.toml"}
    settings = {"max_steps": 7, "lora": {"r": 8}, "logging_steps": 10}
    supervision = Supervision(restarts=1)
    summary = checked(
        tmp_path,
        tiny_folder,
        "Healthy",
        settings=settings,
        sources=sources,
        supervision=supervision,
    )
    assert summary["set_by_command"] == {
        "max_steps": 7,
        "lora.r": 8,
        "model": str(tiny_folder),
        "warm_start": None,
        "restarts": 1,
    }
    assert summary["estimate"] is not None


def test_dry_steps_replace_no_groups(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spares: list[int] = []
    play = Steps._play

    def count(self: Steps, drawn: Drawn, *given: Any) -> StepRollouts:
        spares.append(len(drawn.spares))
        return play(self, drawn, *given)

    monkeypatch.setattr(Steps, "_play", count)
    checked(tmp_path, tiny_folder, "Healthy")
    assert set(spares) == {0}


def test_a_healthy_check_says_what_training_would_take(tmp_path: Path, tiny_folder: Path) -> None:
    summary = checked(tmp_path, tiny_folder, "Healthy", price_per_hour=2.0)
    found = summary["estimate"]
    assert 0 < found["seconds_per_step"]["low"] < found["seconds_per_step"]["high"]
    assert found["cost"]["value"] == pytest.approx(2 * found["hours"]["value"])
    assert found["memory"] > 2**20
    assert found["sampled_tokens"]["value"] > 0
    planned = summary["live"][0]
    assert planned["group_size"] == 4
    assert planned["low"] <= planned["value"] <= planned["high"]
    assert [each["rollouts"] for each in summary["cases"]] == [8] * 8


def test_a_check_stops_on_request_and_reports_what_it_played(
    tmp_path: Path, tiny_folder: Path
) -> None:
    stop_file = tmp_path / "Healthy" / "stop.json"

    class Asking(Heartbeat):
        def note(self, doing: str, step: int | None = None) -> None:
            if doing == "playing":
                stop_file.write_text("{}")
            super().note(doing, step)

    with pytest.raises(asyncio.CancelledError):
        checked(tmp_path, tiny_folder, "Healthy", heartbeat=Asking)
    assert not (tmp_path / "Healthy" / "report" / "summary.json").exists()


@pytest.mark.timeout(180)
def test_models_whose_servers_hang_or_fail_are_reported_within_their_time(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is a real model behind its server, which is refused and broken now and then."""
    monkeypatch.setenv("CHECK_KEY", "sk-planted-7f3a")
    talk, turn, never = _real_model(tiny_folder), iter(range(10_000)), threading.Event()

    def broken(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        number = next(turn)
        if number % 3 < 2:
            return (429, 500)[number % 3], {"error": {"message": "not now"}}
        return 200, completion(talk(request))

    def hanging(_: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        never.wait(60)
        return 200, completion("too late")

    with ChatServer() as one, ChatServer() as other:
        one.answer, other.answer = hanging, broken
        others = tuple(
            EndpointSpec(base_url=each.url, model=name, key_variable="CHECK_KEY")
            for each, name in ((one, "sleepy"), (other, "moody"))
        )
        started = time.monotonic()
        summary = checked(
            tmp_path, tiny_folder, "Healthy", others=others, other_cases=2, minutes=0.1
        )
        taken = time.monotonic() - started
        never.set()
    by_name = {each["name"]: each for each in summary["models"]}
    assert "stopped after 0.1 minutes" in by_name["sleepy"]["message"]
    assert by_name["sleepy"]["rollouts"] == 0
    moody = by_name["moody"]
    assert moody["rollouts"] == 16
    assert moody["accuracy"] is not None
    assert set(other.keys) == {"Bearer sk-planted-7f3a"}
    assert taken < 6 + 60, "it waited for a server that never answers"
    assert summary["verdict"] == "learnable"
    folder = tmp_path / "Healthy"
    assert (folder / "rollouts" / "2-moody" / "00000.jsonl").is_file()
    assert "stopped after" in (folder / "logs" / "1-sleepy.log").read_text()
    for path in folder.rglob("*"):
        assert not path.is_file() or b"sk-planted" not in path.read_bytes(), path


def _real_model(tiny: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny)
    model = AutoModelForCausalLM.from_pretrained(tiny)
    turns = threading.Lock()

    def talk(request: dict[str, Any]) -> str:
        with turns, torch.no_grad():
            ids = tokenizer(request["messages"][-1]["content"], return_tensors="pt")
            out = model.generate(**ids, max_new_tokens=8, do_sample=True)
            return str(tokenizer.decode(out[0, ids["input_ids"].shape[1] :]))

    return talk


SEARCHER = """
from agents import Agent, WebSearchTool

from sparring import Environment, Suite


class Searcher(Environment):
    measures = ("exact",)

    def agent(self):
        return Agent(name="searcher", tools=[WebSearchTool()])

    def suite(self):
        raise AssertionError("cases are read by the process that loads them")
"""


def searched(folder: RunFolder) -> None:
    file = folder.path.parent / "searcher.py"
    file.write_text(SEARCHER)
    spec = CheckSpec(target=f"{file}:Searcher", environment="searcher")
    folder.create(spec.model_dump(mode="json"))
    rows = [{"input": f"question {n}", "expected": f"answer {n}"} for n in range(300)]
    run_here(folder, suite=Suite.from_records(rows))


def test_an_agent_that_cannot_be_trained_is_audited_without_a_model(
    tmp_path: Path,
) -> None:
    folder = RunFolder(tmp_path / "check-searcher")
    searched(folder)
    summary = read_json(folder.summary)
    assert summary["verdict"] == "broken"
    assert "cannot be trained" in [note["what"] for note in summary["notes"]]
    assert summary["audit"] == []
