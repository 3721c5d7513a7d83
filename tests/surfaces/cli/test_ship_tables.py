"""A shipment on a terminal: its verdict, its files, its warnings, and how to run it."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from sparring.surfaces.cli.ship_tables import show_shipment
from tests.summaries import completing

SUMMARY: dict[str, Any] = {
    "run": "ship-bell-20261117-010101-aaaa", "name": "porter", "verdict": "equal",
    "sentence": "gguf q8_0 on held-out cases", "problem": "", "to": "/x/porter",
    "training": "bell-1", "checkpoint": "step-2", "model": "tiny", "proof_verdict": "better",
    "margin": 0.05, "is_fine": True, "uploads": ["would upload README.md"],
    "commands": {"llama-server": "llama-server -m gguf/porter-q8_0.gguf"},
    "agent_lines": "client = 1",
    "held_out": {
        "artefact": "gguf q8_0", "likeness": "equal", "sentence": "a loss is excluded",
        "against_base": "better", "rollouts": 24, "looks": 2,
    },
    "artefacts": [
        {
            "name": "gguf q8_0", "path": "gguf/porter-q8_0.gguf", "size": 1_500_000,
            "server": "llama.cpp (xllamacpp)", "prompts": {"conversations": 44},
            "gap": {"mean": 0.001, "largest": 0.02, "kl": 1e-5},
            "warning": "it may have undone part of the training",
            "validation": {"likeness": "equal", "mean_reward": 0.9, "seconds": 3.0},
        },
        {
            "name": "merged", "path": "merged", "size": 4_000_000, "server": "transformers",
            "prompts": {"conversations": 44},
        },
    ],
}  # fmt: skip


def shown(summary: dict[str, Any]) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        completing(show_shipment)(summary, console)
    return capture.get()


def test_verdict_files_warnings_commands_and_lines_are_shown() -> None:
    text = shown(SUMMARY)
    assert text.strip().startswith("equal: gguf q8_0 on held-out cases")
    assert "● gguf q8_0: it may have undone part of the training" in text
    assert "llama-server -m gguf/porter-q8_0.gguf" in text
    assert "client = 1" in text
    assert "/x/porter/how_to_run.md" in text
    assert "would upload README.md" in text


def test_a_refusal_shows_the_fault_and_no_commands() -> None:
    refused = {**SUMMARY, "verdict": "refused", "problem": "merged: the training is lost", "to": ""}
    text = shown(refused)
    assert "✗ merged: the training is lost" in text
    assert "llama-server -m" not in text


def test_what_was_left_out_and_a_trial_are_said() -> None:
    text = shown(
        {**SUMMARY, "warnings": ["gguf was left out: unknown"], "is_trial": True, "to": ""}
    )
    assert "● gguf was left out: unknown" in text
    assert "no folder was written" in text
    assert "sparring ship bell-1 --to FOLDER" in text
