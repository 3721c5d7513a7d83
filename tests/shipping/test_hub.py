"""A dry run lists what would go up; a folder that was changed is not uploaded."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparring.contracts.errors import InfrastructureError, InvalidInput
from sparring.shipping.folder import ShipFolder
from sparring.shipping.hub import upload, would_upload


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = ShipFolder(tmp_path / "model", "ship-1")
    folder.open(0)
    folder.write("merged", lambda at: (at / "weights").write_bytes(b"w") and None)
    return folder.seal({})


class FakeApi:
    """Keeps what it is asked to do."""

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
