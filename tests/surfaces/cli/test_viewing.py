"""The commands of the web view: tokens, exports, and refusals that say what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.surfaces.cli import viewing
from tests.surfaces.web.viewed import SECRET, TRAINING, make_secret, make_training


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    make_training(tmp_path / "runs")
    make_secret(tmp_path / "runs")
    return str(tmp_path / "runs")


def test_tokens_are_created_listed_and_revoked(
    runs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    viewing.create_token("vera", "viewer", 0, runs, as_json=True)
    made = json.loads(capsys.readouterr().out)
    assert made["token"].startswith("sparring_")
    assert made["expires"] is None
    viewing.list_tokens(runs, as_json=False)
    assert "vera  expires never" in capsys.readouterr().out
    viewing.revoke_token(made["id"], runs, as_json=False)
    assert "vera is revoked" in capsys.readouterr().out
    viewing.list_tokens(runs, as_json=True)
    listed = json.loads(capsys.readouterr().out)["tokens"]
    assert [each["state"] for each in listed] == ["revoked"]


def test_an_export_says_what_it_leaves_out(
    runs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    viewing.export(str(tmp_path / "out"), [], runs, has_held_out=False)
    written = capsys.readouterr()
    assert "wrote 2 runs" in written.out
    assert SECRET in written.err
    assert TRAINING in (tmp_path / "out" / "export.js").read_text()


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there are no runs in"):
        viewing.view(str(tmp_path / "nothing"), port=0, has_browser=False)


def test_a_certificate_needs_its_key(runs: str) -> None:
    with pytest.raises(InvalidInput, match="belong together"):
        viewing.serve(runs, {"certificate": "cert.pem", "key": ""})
