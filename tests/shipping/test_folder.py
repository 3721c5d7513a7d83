"""The folder appears complete or not at all, lists its files, and is never overwritten."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparring.contracts.errors import InfrastructureError, InvalidInput, NotEnoughSpace
from sparring.shipping.folder import (
    ShipFolder,
    refuse_unusable,
    upload,
    verify_folder_digests,
    would_upload,
)


@pytest.fixture
def folder(tmp_path: Path) -> ShipFolder:
    made = ShipFolder(tmp_path / "model", "ship-1")
    made.open(0)
    return made


def fill(folder: Path) -> None:
    (folder / "weights").write_bytes(b"w" * 10)


def test_nothing_is_there_before_it_is_sealed(folder: ShipFolder) -> None:
    folder.write("merged", fill)
    assert not folder.place.exists()
    folder.seal({"format": 1})
    assert folder.is_delivered
    assert [path.name for path in folder.place.parent.iterdir()] == ["model"]
    assert verify_folder_digests(folder.place) == []


def test_a_part_that_was_interrupted_is_written_again_and_a_complete_one_is_kept(
    folder: ShipFolder,
) -> None:
    def interrupted(at: Path) -> None:
        fill(at)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder.write("merged", interrupted)
    assert not (folder.staging / "merged").exists()
    folder.open(0)
    assert list(folder.staging.iterdir()) == []
    folder.write("merged", fill)
    folder.write("merged", interrupted)  # complete: the writer is not called


def test_a_file_has_its_name_only_when_it_is_complete(folder: ShipFolder) -> None:
    def interrupted(at: Path) -> None:
        at.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder.write_file("gguf/m.gguf", interrupted)
    assert not (folder.staging / "gguf" / "m.gguf").exists()
    folder.write_file("gguf/m.gguf", lambda at: at.write_bytes(b"whole") and None)
    folder.seal({})
    assert verify_folder_digests(folder.place) == []


def test_missing_changed_and_added_files_are_noticed(folder: ShipFolder) -> None:
    folder.write("merged", fill)
    folder.write("adapter", fill)
    place = folder.seal({})
    (place / "merged" / "weights").write_bytes(b"x" * 10)
    (place / "adapter" / "weights").unlink()
    (place / "added").touch()
    assert verify_folder_digests(place) == [
        "adapter/weights is missing", "merged/weights has changed", "added is not listed",
    ]  # fmt: skip
    assert verify_folder_digests(place / "nowhere") == ["ship.json is missing or cannot be read"]


def test_another_runs_folder_is_not_taken_for_ones_own(folder: ShipFolder) -> None:
    place = folder.seal({})
    other = ShipFolder(place, "ship-2")
    assert not other.is_delivered
    with pytest.raises(InvalidInput, match="never overwrites"):
        other.open(0)


@pytest.mark.parametrize(
    ("number", "error", "advice"),
    [
        (errno.ENOSPC, NotEnoughSpace, "is full; free some space"),
        (errno.EDQUOT, NotEnoughSpace, "is full; free some space"),
        (errno.EROFS, InvalidInput, "cannot be written .* choose another folder"),
    ],
)
def test_errors_of_the_disk_say_what_to_do(
    folder: ShipFolder, number: int, error: type[Exception], advice: str
) -> None:
    def fails(_: Path) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(error, match=advice):
        folder.write("merged", fails)
    assert not folder.place.exists()


def test_a_disk_without_room_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage: Any = type("Usage", (), {"free": 10})()
    monkeypatch.setattr("sparring.shipping.folder.shutil.disk_usage", lambda _: usage)
    with pytest.raises(NotEnoughSpace, match=r"0\.0 GB free, .* needs another 5\.0 GB"):
        ShipFolder(tmp_path / "model", "ship-1").open(5_000_000_000)


def test_a_link_counts_as_existing(tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="exists already"):
        refuse_unusable(tmp_path / "model")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = ShipFolder(tmp_path / "model", "ship-1")
    folder.open(0)
    folder.write("merged", lambda at: (at / "weights").write_bytes(b"w") and None)
    return folder.seal({})


class FakeApi:
    """Keeps its calls."""

    endpoint = "https://hub"
    private = True
    done: list[tuple[str, Any]] = []  # noqa: RUF012

    def create_repo(self, name: str, **options: Any) -> None:
        self.done.append((name, options))

    def repo_info(self, _: str) -> Any:
        return SimpleNamespace(private=self.private)

    def upload_folder(self, **options: Any) -> None:
        self.done.append(("upload", options))


def test_a_dry_run_lists_every_file_and_uploads_nothing(place: Path) -> None:
    lines = would_upload(place, "me/model")
    assert lines[0] == "would upload merged/weights (0.0 MB) to me/model"
    assert lines[-1] == "nothing was uploaded: add --upload"


def test_an_upload_is_private_and_of_the_whole_folder(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.HfApi", FakeApi)
    assert upload(place, "me/model") == "https://hub/me/model"
    (created, options), (_, uploaded) = FakeApi.done[-2:]
    assert created == "me/model"
    assert options["private"]
    assert uploaded["folder_path"] == place


def test_nothing_is_uploaded_to_a_public_repository(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.HfApi", FakeApi)
    monkeypatch.setattr(FakeApi, "private", False)
    with pytest.raises(InvalidInput, match="me/model is public, so nothing was uploaded"):
        upload(place, "me/model")
    assert FakeApi.done[-1][0] == "me/model"


def test_a_changed_folder_is_refused(place: Path) -> None:
    (place / "merged" / "weights").write_bytes(b"x")
    with pytest.raises(InvalidInput, match="merged/weights has changed"):
        upload(place, "me/model")


def test_a_failed_upload_says_that_the_folder_is_complete(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr(FakeApi, "create_repo", fails)
    monkeypatch.setattr("huggingface_hub.HfApi", FakeApi)
    with pytest.raises(InfrastructureError, match=r"no network\. The folder .* is complete"):
        upload(place, "me/model")
