"""Checkpoints that are whole or not there.

Written into a folder aside, listed in a manifest with sizes and digests, synced to disk, and
renamed into place. Only what verifies against its manifest is ever resumed from.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.contracts.errors import CheckpointError, NewerFormat, RunChanged
from sparring.contracts.specs import FORMAT
from sparring.run_folder.checkpoint_list import (
    MANIFEST,
    Checkpoint,
    best_of,
    list_checkpoints,
    step_of,
)
from sparring.run_folder.files import read_json, sync_folder, write_json

_WITHOUT_THESE_NOTHING_RESUMES = ("trainer_state.json", "optimizer.pt", "scheduler.pt")
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Identity:
    """What a checkpoint was made with. Going on with another is another experiment."""

    suite: str
    code: str
    template: str
    world_size: int


class Checkpoints:
    """The checkpoints of one run. All ranks have one; rank 0 alone seals and prunes."""

    def __init__(self, folder: Path, identity: Identity, *, boundary: int, kept: int) -> None:
        self._folder = folder
        self._identity = identity
        self._boundary = boundary
        self._kept = kept

    # ------------------------------------------------------------------ writing

    def staging(self, step: int) -> Path:
        """Where the files of this step are written; the same for all ranks."""
        if step % self._boundary:
            raise CheckpointError(
                f"step {step} lies inside of a generation (they last {self._boundary} steps): what "
                "is resumed from there learns from other rollouts; save on a multiple of that"
            )
        return self._folder / f".step-{step}.partial"

    def clear_staging(self) -> None:
        """Remove what a crash left half written."""
        for path in self._folder.glob(".step-*"):
            shutil.rmtree(path, ignore_errors=True)

    def seal(self, written: Path, step: int, *, is_sharded: bool = False, **about: Any) -> Path:
        """Manifest, sync, rename. `written` holds all files of the checkpoint; FSDP and DeepSpeed
        name those of the optimizer themselves, and before the first step there is none."""
        needed = _WITHOUT_THESE_NOTHING_RESUMES[: 1 if is_sharded else None] if step else ()
        missing = [name for name in needed if not (written / name).exists()]
        if missing:
            raise CheckpointError(f"{written} lacks {', '.join(missing)}; it would not resume")
        files = {
            str(path.relative_to(written)): _described(path)
            for path in sorted(written.rglob("*"))
            if path.is_file()
        }
        manifest = {
            "format": FORMAT,
            "step": step,
            "boundary": self._boundary,
            "world_size": self._identity.world_size,
            "digests": {
                "suite": self._identity.suite,
                "code": self._identity.code,
                "template": self._identity.template,
            },
            **about,
            "files": files,
        }
        write_json(written / MANIFEST, manifest)
        for folder in {written, *(path.parent for path in written.rglob("*"))}:
            sync_folder(folder)
        return self._put_in_place(written, step)

    def _put_in_place(self, written: Path, step: int) -> Path:
        place = self._folder / f"step-{step}"
        if place.exists():  # one that did not verify, or that an earlier attempt wrote
            aside = self._folder / f".step-{step}.replaced"
            shutil.rmtree(aside, ignore_errors=True)
            place.rename(aside)
        written.rename(place)
        sync_folder(self._folder)
        self.clear_staging()
        return place

    def prune(self) -> None:
        """Keep the newest few, the best, and the one that a warm start ended in."""
        there = [each for each in self.all() if each.step > 0]
        kept = {each.step for each in there[-self._kept :]}
        if (best := best_of(there)) is not None:
            kept.add(best.step)
        for each in there:
            if each.step not in kept:
                gone = self._folder / f".step-{each.step}.pruned"
                each.path.rename(gone)  # at once: half of a checkpoint must never look like one
                shutil.rmtree(gone)

    # ------------------------------------------------------------------ reading

    def all(self) -> list[Checkpoint]:
        """Every checkpoint in place, by step; not verified."""
        return list_checkpoints(self._folder)

    def newest_verified(self, *, accept_changes: bool = False) -> Checkpoint | None:
        """What to resume from; None where nothing was saved yet."""
        problems = []
        for path in sorted(self._folder.glob("step-*"), key=step_of, reverse=True):
            if step_of(path) == 0:
                continue  # a warm start, which is done again where it is not whole
            if problem := verify(path):
                problems.append(f"{path.name}: {problem}")
                continue
            found = Checkpoint(path, read_json(path / MANIFEST))
            if not accept_changes:
                self._refuse_another(found)
            return found
        if problems:
            raise CheckpointError(
                f"no checkpoint in {self._folder} can be trusted: {'; '.join(problems)}. Bring the "
                "files back, or delete the folder to start from the beginning"
            )
        return None

    def start(self, *, accept_changes: bool = False) -> Checkpoint | None:
        """What a warm start ended in, if it is whole."""
        path = self._folder / "step-0"
        if verify(path):
            return None
        found = Checkpoint(path, read_json(path / MANIFEST))
        if not accept_changes:
            self._refuse_another(found)
        return found

    def set_aside_after(self, step: int) -> None:
        """Take away what lies behind the checkpoint that a run goes on from: it did not verify,
        and must not be taken for the newest or the best."""
        for path in self._folder.glob("step-*"):
            if step_of(path) > step:
                path.rename(path.with_name(f".{path.name}.damaged"))

    def _refuse_another(self, found: Checkpoint) -> None:
        digests, mine = found.manifest["digests"], self._identity
        changed = [
            f"{name} ({digests.get(name, '')[:12]} → {now[:12]})"
            for name, now in (
                ("suite", mine.suite),
                ("code", mine.code),
                ("template", mine.template),
            )
            if digests.get(name) != now
        ]
        if found.manifest["world_size"] != mine.world_size:
            changed.append(f"world size ({found.manifest['world_size']} → {mine.world_size})")
        if changed:
            raise RunChanged(
                f"{found.path} was made with another {', '.join(changed)}; start a new run, or "
                "accept the changes (--accept-changes, accept_changes=True) if they do not matter"
            )


def verify(path: Path) -> str:
    """What is wrong with a checkpoint; empty where it is whole."""
    if not (path / MANIFEST).is_file():
        return f"has no {MANIFEST}"
    try:
        manifest = read_json(path / MANIFEST)
        if manifest.get("format", 0) > FORMAT:
            raise NewerFormat(f"{path} was written by a newer Sparring; upgrade it")
        for name, described in manifest["files"].items():
            if not (path / name).is_file():
                return f"{name} is missing"
            if (path / name).stat().st_size != described["size"]:
                return f"{name} has another size than was saved"
            if _described(path / name, durable=False) != described:
                return f"{name} is not what was saved"
    except (ValueError, KeyError, TypeError) as error:
        return f"its manifest cannot be read ({type(error).__name__})"
    return ""


def _described(path: Path, *, durable: bool = True) -> dict[str, Any]:
    """Size and digest of a file, which is on disk when this returns."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
        if durable:
            os.fsync(file.fileno())
    return {"size": path.stat().st_size, "sha256": digest.hexdigest()}
