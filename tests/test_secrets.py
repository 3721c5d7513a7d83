"""Keys come from an environment variable, or from the file that one names."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.secrets import read_key


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TEST_KEY", "TEST_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)


def key_file(folder: Path, text: str) -> str:
    path = folder / "key"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_without_either_there_is_no_key() -> None:
    assert read_key("TEST_KEY") is None


def test_a_key_in_a_file_has_no_line_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TEST_KEY_FILE", key_file(tmp_path, " from-file\r\n"))
    key = read_key("TEST_KEY")
    assert key is not None
    assert key.get_secret_value() == "from-file"


@pytest.mark.parametrize(("value", "wanted"), [("direct", "direct"), ("", "from-file")])
def test_the_variable_goes_before_the_file_unless_it_is_empty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str, wanted: str
) -> None:
    monkeypatch.setenv("TEST_KEY", value)
    monkeypatch.setenv("TEST_KEY_FILE", key_file(tmp_path, "from-file"))
    key = read_key("TEST_KEY")
    assert key is not None
    assert key.get_secret_value() == wanted


def test_a_key_is_not_shown_where_it_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "hunter2")
    key = read_key("TEST_KEY")
    assert "hunter2" not in f"{key} {key!r}"


def test_a_named_file_that_is_missing_is_an_error_and_not_no_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEST_KEY_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_key("TEST_KEY")
