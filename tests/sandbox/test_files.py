"""A workspace is read and written without following what a program put into it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparring.contracts.errors import InfrastructureError
from sparring.sandbox.files import OutsideWorkspace, list_files, parts_of, read_bytes, write_bytes

parts = st.text("ab.ä \n", min_size=1, max_size=4).filter(lambda part: part not in (".", ".."))


@given(names=st.lists(parts, min_size=1, max_size=4), content=st.binary(max_size=50))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_written_file_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], content: bytes
) -> None:
    root = tmp_path_factory.mktemp("workspace")
    name = "/".join(names)
    write_bytes(root, name, b"something longer than what comes next " * 2)
    write_bytes(root, f"/workspace/{name}", content)
    assert read_bytes(root, name, 1000) == content
    assert root.joinpath(*names).read_bytes() == content


def test_a_read_returns_at_most_the_requested_bytes(tmp_path: Path) -> None:
    write_bytes(tmp_path, "x", b"0123456789")
    assert read_bytes(tmp_path, "x", 4) == b"0123"


@given(st.text("./ab", max_size=12))
def test_a_name_is_split_into_plain_parts_or_refused(name: str) -> None:
    try:
        found = parts_of(name)
    except OutsideWorkspace:
        stripped = [part for part in name.split("/") if part not in ("", ".")]
        assert name.startswith("/") or ".." in stripped or not stripped
    else:
        assert found
        assert not {"", ".", ".."} & set(found)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("/etc/passwd", "is not a file of the workspace"),
        ("/workspace", "is not a file of the workspace"),
        ("/workspace//etc/passwd", "is not a file of the workspace"),
        ("", "is not a file of the workspace"),
        ("a/../../x", "leads out of the workspace"),
        ("./.", "leads out of the workspace"),
        ("a/" * 32 + "x", "leads out of the workspace"),
        ("x\0y", "without zero bytes"),
        ("x" * 1025, "at most 1024 bytes"),
        ("\ud800", "must be text"),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(OutsideWorkspace, match=reason):
        parts_of(name)


def test_links_are_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "file").symlink_to(outside / "secret")
    (root / "folder").symlink_to(outside)
    for name, reason in (("file", "not a plain file"), ("folder/secret", "not a folder")):
        with pytest.raises(OutsideWorkspace, match=reason):
            read_bytes(root, name, 10)
        with pytest.raises(OutsideWorkspace, match=reason):
            write_bytes(root, name, b"overwritten")
    assert (outside / "secret").read_text() == "secret"
    assert list_files(root, 10) == ["file", "folder"]


def test_only_plain_files_are_opened_and_a_pipe_blocks_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(OutsideWorkspace, match="not a plain file"):
            read_bytes(tmp_path, name, 10)
    with pytest.raises(OutsideWorkspace, match="not a plain file"):
        write_bytes(tmp_path, "pipe", b"x")
    write_bytes(tmp_path, "file", b"")
    with pytest.raises(OutsideWorkspace, match="'file' is not a folder"):
        read_bytes(tmp_path, "file/x", 10)


def test_a_file_that_is_not_there_is_missing_but_a_workspace_that_is_not_there_is_gone(
    tmp_path: Path,
) -> None:
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path, "x", 10)
    with pytest.raises(InfrastructureError, match="the workspace is gone"):
        read_bytes(tmp_path / "gone", "x", 10)


def test_names_are_sorted_and_folders_end_with_a_slash(tmp_path: Path) -> None:
    for name in ("b", "a/y/z", "a/x"):
        write_bytes(tmp_path, name, b"")
    assert list_files(tmp_path, 10) == ["a/", "a/x", "a/y/", "a/y/z", "b"]


@given(st.integers(0, 12))
def test_a_listing_has_at_most_the_requested_names(
    tmp_path_factory: pytest.TempPathFactory, most: int
) -> None:
    root = tmp_path_factory.mktemp("workspace")
    for number in range(4):
        write_bytes(root, f"{number}/x", b"")
    assert len(list_files(root, most)) == min(most, 8)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_and_new_folders_belong_to_the_user_of_the_sandbox(tmp_path: Path) -> None:
    write_bytes(tmp_path, "a/b/x", b"", owner=12345)
    owners = {(tmp_path / name).stat().st_uid for name in ("a", "a/b", "a/b/x")}
    assert owners == {12345}
