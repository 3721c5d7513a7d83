"""Lists the checkpoints of a run folder with their manifests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.json import JsonObject
from sparring.run_folder.files import read_json
from sparring.run_folder.layout import existing_folder

MANIFEST = "manifest.json"
DIFFICULTY = "difficulty.json"
IN_PLAY = "in_play.json"  # the rollouts in play when the checkpoint was saved
IN_PLAY_WEIGHTS = "in_play"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint's folder and its manifest."""

    path: Path
    manifest: JsonObject

    @property
    def step(self) -> int:
        """The training step at which it was saved."""
        return int(self.manifest["step"])

    @property
    def score(self) -> float | None:
        """The mean validation reward; None if the checkpoint was not validated."""
        return self.manifest.get("score")

    def difficulty(self) -> JsonObject | None:
        """Return the saved estimate of the cases' difficulty; None if there is none."""
        path = self.path / DIFFICULTY
        return read_json(path) if path.is_file() else None


def candidate_of(model: str | None) -> str:
    """Return a name for locally trained weights: RUN/CHECKPOINT for the folder of a run or of a
    checkpoint, the path for a folder that `save` wrote. Return "" for any other model."""
    folder = existing_folder(Path(model).expanduser()) if model else None
    if folder is None:
        return ""
    path = folder.resolve()
    if (path / "spec.json").is_file():
        chosen = chosen_of(list_checkpoints(path / "checkpoints"))
        path = chosen.path if chosen is not None else path
    if path.parent.name == "checkpoints":
        return f"{path.parent.parent.name}/{path.name}"
    return str(path) if (path / "sparring.json").is_file() else ""


def list_checkpoints(folder: Path) -> list[Checkpoint]:
    """Return the checkpoints with a readable manifest, by step. Their files are not verified."""
    checkpoints = []
    for path in sorted(folder.glob("step-*"), key=step_of):
        try:
            checkpoints.append(Checkpoint(path, read_json(path / MANIFEST)))
        except (OSError, ValueError):
            continue
    return checkpoints


def best_of(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """Return the checkpoint with the highest validation score, the latest of several equal ones."""
    scored = [checkpoint for checkpoint in checkpoints if checkpoint.score is not None]
    return max(scored, key=lambda each: (each.score, each.step)) if scored else None


def chosen_of(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """Return the checkpoint that represents a run: the best, or the last if none was validated."""
    return best_of(checkpoints) or (checkpoints[-1] if checkpoints else None)


def step_of(path: Path) -> int:
    """Return the number in a name such as step-50; -1 if the name has none."""
    number = path.name.removeprefix("step-")
    return int(number) if number.isdigit() else -1
