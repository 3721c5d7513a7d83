"""What leaves the machine with a shipment, and what does not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparring.contracts.summaries import ProveSummary
from sparring.jobs.ship.handing_over import Delivery, _shareable, _without_paths
from tests.summaries import complete


@pytest.mark.parametrize("is_fine", [True, False])
def test_a_model_is_uploaded_only_if_the_verdict_is_fine(
    is_fine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr("sparring.shipping.folder.upload", lambda *what: sent.append(what) or "url")
    spec = SimpleNamespace(hub="me/porter", upload=True, register_with_ollama=False)
    ship = SimpleNamespace(place=tmp_path)
    context: Any = SimpleNamespace(spec=spec, source=None, ship=ship)
    (line,) = Delivery(context)._pass_on(is_fine=is_fine)
    assert len(sent) == is_fine
    assert line == ("uploaded to url" if is_fine else
                    "not uploaded to me/porter, because of the verdict")  # fmt: skip


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--download-dir=/home/kim/models", "--download-dir=models"),
        ("file:///home/kim/x.jsonl", "x.jsonl"),
        ("/models", "models"),
        ("see /home/kim/a, ~/b", "see a, b"),
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("https://host/v1", "https://host/v1"),
        ("0.5 / 1", "0.5 / 1"),
    ],
)
def test_paths_in_settings_are_shown_by_their_last_part(text: str, shown: str) -> None:
    assert _without_paths({"a": [text]}) == {"a": [shown]}


def test_the_proof_in_a_shipment_names_no_path_of_this_machine() -> None:
    given = {
        "model": "/home/kim/models/small",
        "checkpoint": "/home/kim/runs/r/checkpoints/step-5",
        "unmoved": ["~/notes.txt"],
        "verdict": "better",
        "left_out": ["making the world of case 7 failed"],
    }
    shared = _shareable(complete(ProveSummary, given))
    assert shared is not None
    assert (shared["model"], shared["verdict"]) == ("small", "better")
    assert shared["unmoved"] == ["notes.txt"]
    assert not {"checkpoint", "flips", "still_fails", "audit", "left_out"} & set(shared)
