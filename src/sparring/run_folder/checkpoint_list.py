"""Checkpoints as they lie in a run folder: by step, with what their manifests say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.run_folder.files import read_json

MANIFEST = "manifest.json"
DIFFICULTY = "difficulty.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One that is in place. `score` is its mean validation reward, where there was any."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def step(self) -> int:
        return int(self.manifest["step"])

    @property
    def score(self) -> float | None:
        return self.manifest.get("score")

    def difficulty(self) -> Mapping[str, Any] | None:
        """What was known of the cases there."""
        path = self.path / DIFFICULTY
        return read_json(path) if path.is_file() else None


def list_checkpoints(folder: Path) -> list[Checkpoint]:
    """By step, those with a manifest that can be read; not verified."""
    found = []
    for path in sorted(folder.glob("step-*"), key=step_of):
        try:
            found.append(Checkpoint(path, read_json(path / MANIFEST)))
        except (OSError, ValueError):
            continue
    return found


def best_of(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """The highest validation score; the latest of equals, for it has practised most."""
    scored = [each for each in checkpoints if each.score is not None]
    return max(scored, key=lambda each: (each.score, each.step)) if scored else None


def step_of(path: Path) -> int:
    number = path.name.removeprefix("step-")
    return int(number) if number.isdigit() else -1
