"""Writes the shipped folder: stages it beside its destination, lists the digest of every file,
renames it when it is complete, and uploads it to a hub.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparring.contracts.errors import InfrastructureError, InvalidInput, NotEnoughSpace
from sparring.run_folder.files import read_json_or_empty, sync_folder, write_json

MANIFEST = "ship.json"
SIGNATURE = "model.sig"
WORK = ".work"
_BLOCK = 1 << 20


class ShipFolder:
    """A shipment's folder. It appears at `place` complete or not at all."""

    def __init__(self, place: Path, run: str) -> None:
        self.place = place
        self._run = run
        self.staging = place.with_name(f".{place.name}.{run}.partial")

    @property
    def is_delivered(self) -> bool:
        """Whether this run has renamed the complete folder to `place`."""
        return read_json_or_empty(self.place / MANIFEST).get("shipment") == self._run

    @property
    def root(self) -> Path:
        """The folder that contains the files: `staging`, or `place` after delivery."""
        return self.place if self.is_delivered else self.staging

    def open(self, needed: int) -> None:
        """Create the staging folder, or keep an earlier attempt's.

        Raises InvalidInput if `place` exists or cannot be written, and NotEnoughSpace if the disk
        has no room for `needed` bytes, less those already written.
        """
        refuse_unusable(self.place)
        with _explained(self.place):
            self.staging.mkdir(parents=True, exist_ok=True)
            for leftover in self.staging.glob("*.writing"):
                shutil.rmtree(leftover, ignore_errors=True)
            written = sum(each.stat().st_size for each in self.staging.rglob("*") if each.is_file())
            free = shutil.disk_usage(self.staging).free
        missing = needed - written
        if missing > free:
            raise NotEnoughSpace(
                f"{self.place.parent} has {free / 1e9:.1f} GB free, and the shipment needs "
                f"another {missing / 1e9:.1f} GB; free some space, choose another folder "
                "with --to, or fewer forms with --form"
            )

    def write(self, name: str, writer: Callable[[Path], None]) -> Path:
        """Create the folder `name` with `writer`, unless an earlier attempt completed it. The
        folder gets its name only when it is complete."""
        folder = self.root / name
        if folder.is_dir():
            return folder
        writing = self.staging / f"{name}.writing"
        shutil.rmtree(writing, ignore_errors=True)
        with _explained(self.place):
            writing.mkdir(parents=True)
            writer(writing)
            _sync(writing)
            writing.rename(folder)
        return folder

    def write_file(self, name: str, writer: Callable[[Path], None]) -> Path:
        """Create the file `name` with `writer`, unless an earlier attempt completed it."""
        file = self.root / name
        if file.is_file():
            return file
        writing = file.with_name(f".{file.name}.writing")
        with _explained(self.place):
            file.parent.mkdir(parents=True, exist_ok=True)
            writing.unlink(missing_ok=True)
            writer(writing)
            sync_folder(writing)
            writing.rename(file)
        return file

    def seal(self, facts: dict[str, Any]) -> Path:
        """Write the manifest with the digest of every file, and rename the folder into place."""
        with _explained(self.place):
            for work in self.staging.glob(f"{WORK}*"):
                shutil.rmtree(work, ignore_errors=True)
            for leftover in self.staging.rglob(".*.writing"):
                leftover.unlink()
            files = {
                str(path.relative_to(self.staging)): digest_of_file(path)
                for path in sorted(self.staging.rglob("*"))
                if path.is_file() and path.name != MANIFEST
            }
            write_json(self.staging / MANIFEST, {**facts, "shipment": self._run, "files": files})
            _sync(self.staging)
            refuse_unusable(self.place)
            self.staging.rename(self.place)
            sync_folder(self.place.parent)
        return self.place

    def discard(self) -> None:
        """Remove the staging folder."""
        shutil.rmtree(self.staging, ignore_errors=True)


def refuse_unusable(place: Path) -> None:
    """Raise InvalidInput if `place` exists, or if its nearest existing parent cannot be written."""
    if place.exists() or place.is_symlink():
        raise InvalidInput(
            f"{place} exists already, and a shipment never overwrites; choose another folder with "
            "--to, or remove this one"
        )
    parent = next(each for each in place.parents if each.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InvalidInput(f"{parent} cannot be written; choose another folder with --to")


def digest_of_file(path: Path) -> dict[str, Any]:
    """Return the size and SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return {"size": path.stat().st_size, "sha256": digest.hexdigest()}


def verify_folder_digests(place: Path) -> list[str]:
    """Return the problems of a shipped folder: missing, changed and unlisted files. Ignores the
    manifest itself, and the signature, which is added later."""
    listed = read_json_or_empty(place / MANIFEST).get("files")
    if not isinstance(listed, dict):
        return [f"{MANIFEST} is missing or cannot be read"]
    problems = []
    for name, entry in listed.items():
        path = place / name
        if not path.is_file():
            problems.append(f"{name} is missing")
        elif digest_of_file(path) != entry:
            problems.append(f"{name} has changed")
    found = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    extra = sorted(found - set(listed) - {MANIFEST, SIGNATURE})
    return problems + [f"{name} is not listed" for name in extra]


def _sync(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        sync_folder(path)


def _is_under(path: Path, folder: Path) -> bool:
    return path.absolute().is_relative_to(folder.absolute())


@contextmanager
def _explained(place: Path) -> Iterator[None]:
    """Convert file system errors below `place.parent` to errors that state a remedy."""
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str) and not _is_under(Path(error.filename), place.parent):
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NotEnoughSpace(
                f"the disk of {place.parent} is full; free some space and run "
                "`sparring run resume`, or ship to another folder with --to"
            ) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise InvalidInput(
                f"{place.parent} cannot be written ({error.strerror}); choose another folder "
                "with --to"
            ) from error
        raise


def would_upload(folder: Path, repository: str) -> list[str]:
    """Return one line for each file that an upload would send, and a hint to add --upload."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [
        f"would upload {path.relative_to(folder)} ({path.stat().st_size / 1e6:.1f} MB) to "
        f"{repository}"
        for path in files
    ]
    return [*lines, "nothing was uploaded: add --upload"]


def upload(folder: Path, repository: str) -> str:
    """Upload a folder and return the URL of the repository, which is created as private if it is
    missing. Raises InvalidInput if the repository is public, or if the files do not match the
    manifest."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    if problems := verify_folder_digests(folder):
        raise InvalidInput(f"{folder} is not uploaded: {'; '.join(problems[:3])}")
    api = HfApi()
    try:
        api.create_repo(repository, exist_ok=True, private=True)
        is_private = api.repo_info(repository).private
        if is_private:
            api.upload_folder(
                repo_id=repository, folder_path=folder, commit_message="Shipped by Sparring"
            )
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise InfrastructureError(
            f"the upload to {repository} failed: {str(error).splitlines()[0]}. The folder {folder} "
            "is complete; log in with `hf auth login` and upload it, or ship again"
        ) from error
    if not is_private:
        raise InvalidInput(
            f"{repository} is public, so nothing was uploaded; make it private, name another "
            f"repository, or publish the folder yourself: hf upload {repository} {folder}"
        )
    return f"{api.endpoint}/{repository}"
