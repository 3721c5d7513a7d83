"""Writes and verifies checkpoints, which are either complete or absent.

The files of a checkpoint are written to a staging folder, listed in a manifest with sizes and
digests, and synced to disk. Then the folder is renamed into place. A run resumes only from a
checkpoint that matches its manifest.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
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

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Identity:
    """The digests and the world size that a checkpoint was made with. A run with another identity
    does not resume from it, because it would continue another experiment."""

    suite: str
    code: str
    template: str
    world_size: int

    def digests(self) -> dict[str, str]:
        """Return the digests by what they are of."""
        return {"suite": self.suite, "code": self.code, "template": self.template}


class Checkpoints:
    """The checkpoints of one run. Every rank has an instance; only rank 0 seals and prunes.

    A checkpoint can be saved only at a multiple of `boundary` steps, where a generation of rollouts
    ends. `kept` is the number of newest checkpoints that `prune` keeps.
    """

    def __init__(self, folder: Path, identity: Identity, *, boundary: int, kept: int) -> None:
        self._folder = folder
        self._identity = identity
        self._boundary = boundary
        self._newest_kept = kept

    def proposes_alike(self, checkpoint: Checkpoint) -> bool:
        """Whether the run that saved a checkpoint drew the same cases for the same ranks."""
        saved = checkpoint.manifest["digests"]["suite"], checkpoint.manifest["world_size"]
        return saved == (self._identity.suite, self._identity.world_size)

    # ------------------------------------------------------------------ writing

    def staging(self, step: int) -> Path:
        """Return the folder to which all ranks write the files of this step.

        Raises CheckpointError in the middle of a generation.
        """
        if step % self._boundary:
            raise CheckpointError(
                f"cannot save a checkpoint at step {step}, in the middle of a generation of "
                f"{self._boundary} steps: a run resumed from it would learn from different "
                f"rollouts; save at a multiple of {self._boundary} steps"
            )
        return self._folder / f".step-{step}.partial"

    def clear_staging(self) -> None:
        """Remove all staging folders, and checkpoints that were replaced, pruned or set aside."""
        for path in self._folder.glob(".step-*"):
            shutil.rmtree(path, ignore_errors=True)

    def seal(self, written: Path, step: int, *, needed: Sequence[str] = (), **extra: Any) -> Path:
        """Complete a checkpoint, and return its folder. `extra` is added to the manifest.

        Writes the manifest to `written`, the folder with all files, syncs the folder to disk, and
        renames it into place. Raises CheckpointError if one of the files `needed` for a resume is
        missing.
        """
        missing = [name for name in needed if not (written / name).exists()]
        if missing:
            raise CheckpointError(
                f"{written} lacks {', '.join(missing)}; the checkpoint is not saved, because no "
                "run could resume from it"
            )
        files = {
            str(path.relative_to(written)): _file_entry(path)
            for path in sorted(written.rglob("*"))
            if path.is_file()
        }
        manifest = {
            "format": FORMAT,
            "step": step,
            "boundary": self._boundary,
            "world_size": self._identity.world_size,
            "digests": self._identity.digests(),
            **extra,
            "files": files,
        }
        write_json(written / MANIFEST, manifest)
        for folder in {written, *(path.parent for path in written.rglob("*"))}:
            sync_folder(folder)
        return self._put_in_place(written, step)

    def note_score(self, step: int, score: float) -> None:
        """Add the score of a later validation to the manifest of a checkpoint, if there is one."""
        file = self._folder / f"step-{step}" / MANIFEST
        if file.is_file():
            write_json(file, {**read_json(file), "score": score})

    def _put_in_place(self, written: Path, step: int) -> Path:
        target = self._folder / f"step-{step}"
        if target.exists():  # damaged, or written by an earlier attempt
            replaced = self._folder / f".step-{step}.replaced"
            shutil.rmtree(replaced, ignore_errors=True)
            target.rename(replaced)
        written.rename(target)
        sync_folder(self._folder)
        self.clear_staging()
        return target

    def prune(self) -> None:
        """Delete all checkpoints except the newest `kept`, the best, and the warm start's."""
        existing = [each for each in self.all() if each.step > 0]
        keep = {each.step for each in existing[-self._newest_kept :]}
        if (best := best_of(existing)) is not None:
            keep.add(best.step)
        for each in existing:
            if each.step not in keep:
                pruned = self._folder / f".step-{each.step}.pruned"
                each.path.rename(pruned)  # atomic: a partial checkpoint must never look complete
                shutil.rmtree(pruned)

    # ------------------------------------------------------------------ reading

    def all(self) -> list[Checkpoint]:
        """Return the checkpoints with a readable manifest, sorted by step, without verification of
        their files."""
        return list_checkpoints(self._folder)

    def newest_verified(self, *, accept_changes: bool = False) -> Checkpoint | None:
        """Return the newest intact checkpoint, or None if none was saved. Ignores step 0.

        Raises CheckpointError if no checkpoint is intact, and RunChanged if the newest intact one
        has another identity, unless `accept_changes` is true.
        """
        problems = []
        for path in sorted(self._folder.glob("step-*"), key=step_of, reverse=True):
            if step_of(path) == 0:
                continue  # the warm start: it is repeated if its checkpoint is damaged
            if problem := verify(path):
                problems.append(f"{path.name}: {problem}")
                continue
            checkpoint = Checkpoint(path, read_json(path / MANIFEST))
            if not accept_changes:
                self._refuse_other_identity(checkpoint)
            return checkpoint
        if problems:
            raise CheckpointError(
                f"no checkpoint in {self._folder} is intact: {'; '.join(problems)}. Restore the "
                "files, or delete the folder to start from the beginning"
            )
        return None

    def start(self, *, accept_changes: bool = False) -> Checkpoint | None:
        """Return the checkpoint of a warm start, or None if it is absent or damaged.

        Raises RunChanged if it has another identity, unless `accept_changes` is true.
        """
        path = self._folder / "step-0"
        if verify(path):
            return None
        checkpoint = Checkpoint(path, read_json(path / MANIFEST))
        if not accept_changes:
            self._refuse_other_identity(checkpoint)
        return checkpoint

    def set_aside_after(self, step: int) -> None:
        """Rename all checkpoints after `step`, from which the run resumes.

        They are damaged, and must not be listed as the newest or the best.
        """
        for path in self._folder.glob("step-*"):
            if step_of(path) > step:
                path.rename(path.with_name(f".{path.name}.damaged"))

    def _refuse_other_identity(self, checkpoint: Checkpoint) -> None:
        digests, world_size = checkpoint.manifest["digests"], self._identity.world_size
        changed = [
            f"{name} ({digests.get(name, '')[:12]} → {digest[:12]})"
            for name, digest in self._identity.digests().items()
            if digests.get(name) != digest
        ]
        if (saved := checkpoint.manifest["world_size"]) != world_size:
            changed.append(f"world size ({saved} → {world_size})")
        if changed:
            raise RunChanged(
                f"{checkpoint.path} was made with a different {', '.join(changed)}; start a new "
                "run, or accept the changes (--accept-changes, accept_changes=True) if they do not "
                "matter"
            )


def verify(path: Path) -> str:
    """Return the first problem of a checkpoint, or an empty string if it matches its manifest.

    Raises NewerFormat if a newer version of Sparring wrote it.
    """
    if not (path / MANIFEST).is_file():
        return f"has no {MANIFEST}"
    try:
        manifest = read_json(path / MANIFEST)
        if manifest.get("format", 0) > FORMAT:
            raise NewerFormat(f"{path} was written by a newer Sparring; upgrade Sparring")
        for name, entry in manifest["files"].items():
            if not (path / name).is_file():
                return f"{name} is missing"
            if (path / name).stat().st_size != entry["size"]:
                return f"the size of {name} has changed"
            if _file_entry(path / name, durable=False) != entry:
                return f"the content of {name} has changed"
    except (ValueError, KeyError, TypeError) as error:
        return f"its manifest cannot be read ({type(error).__name__})"
    return ""


def _file_entry(path: Path, *, durable: bool = True) -> dict[str, Any]:
    """Return the size and digest of a file. With `durable`, sync the file to disk."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
        if durable:
            os.fsync(file.fileno())
    return {"size": path.stat().st_size, "sha256": digest.hexdigest()}
