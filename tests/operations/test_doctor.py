"""The doctor examines what Sparring needs, and says for each finding how to mend it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparring import sandbox
from sparring.installed import how_to_install
from sparring.operations import doctor
from sparring.operations.doctor import KEYS, TESTED, Finding, examine, key_finding, package_finding
from sparring.operations.operation import Caller, NoArguments, Role
from sparring.sandbox import Support, workspaces

WORKING = Support(bwrap="bwrap 0.8", why_not="", fix="", user="nobody", memory="cgroups v2")


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU where everything is as tested, and no key."""
    monkeypatch.setattr(doctor, "version_of", lambda name: TESTED[name][0])
    monkeypatch.setattr(sandbox, "probe", lambda: WORKING)
    monkeypatch.setattr(workspaces, "workspaces_are_bounded", lambda: True)
    for variable in KEYS:
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(f"{variable}_FILE", raising=False)
    torch_tells(monkeypatch, devices=["H100"])


def torch_tells(monkeypatch: pytest.MonkeyPatch, **facts: Any) -> None:
    """The process that asks torch prints this instead."""
    known = {"version": "2.13.0", "cuda": "13.0", "devices": [], "bf16": True, "threads": 4}
    monkeypatch.setattr(doctor, "_TORCH_PROBE", f"print({json.dumps({**known, **facts})!r})")


def findings(folder: Path) -> dict[str, Finding]:
    caller = Caller(Role.VIEWER, folder / "runs", "guest", folder=folder)
    return {each.what: each for each in examine(NoArguments(), caller).findings}


def test_the_doctor_examines_every_tested_package_and_key(tmp_path: Path) -> None:
    found = findings(tmp_path)
    assert found.keys() >= {"Python", *TESTED, "devices", "sandbox", "project file", "disk", *KEYS}
    assert {each.standing for each in found.values()} <= {"ok", "optional", "warning"}


def test_every_finding_that_is_not_ok_has_a_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "version_of", lambda _: None)
    monkeypatch.setattr(doctor, "TESTED_PYTHON", (2, 7))
    monkeypatch.setattr(workspaces, "workspaces_are_bounded", lambda: False)
    torch_tells(monkeypatch)
    (tmp_path / "sparring.toml").write_text("[settings]\nno_such_setting = 1\n")
    found = findings(tmp_path)
    not_ok = {each.what for each in found.values() if each.standing != "ok"}
    assert not_ok >= {"Python", *TESTED, "devices", "sandbox disk", "project file", *KEYS}
    assert all(found[what].fix for what in not_ok)


def test_only_a_package_that_is_always_needed_makes_the_installation_faulty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = Caller(Role.VIEWER, tmp_path / "runs", "guest", folder=tmp_path)
    for gone, ok in (("torch", True), ("pydantic", False)):
        monkeypatch.setattr(
            doctor, "version_of", lambda name, gone=gone: None if name == gone else TESTED[name][0]
        )
        assert examine(NoArguments(), caller).ok is ok
    missing = package_finding("pydantic")
    assert (missing.standing, missing.fix) == ("missing", how_to_install())


@pytest.mark.parametrize(
    ("version", "standing"),
    [
        ("2.13.0", "ok"),
        ("2.13.7", "ok"),
        ("2.13.0+cu130", "ok"),
        ("2.14.0", "warning"),
        ("3.13.0", "warning"),
    ],
)
def test_a_package_is_as_tested_up_to_its_last_number(
    monkeypatch: pytest.MonkeyPatch, version: str, standing: str
) -> None:
    monkeypatch.setattr(doctor, "version_of", lambda _: version)
    assert package_finding("torch").standing == standing


def test_a_package_of_an_extra_is_optional_and_says_what_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "version_of", lambda _: None)
    found = package_finding("trl")
    assert (found.standing, found.fix) == ("optional", how_to_install("train"))
    assert "needed to train" in found.found


@pytest.mark.parametrize(
    ("facts", "standing", "text"),
    [
        ({"devices": ["H100", "H100"]}, "ok", "H100, H100 (torch 2.13.0, CUDA 13.0)"),
        ({"devices": ["T4"], "bf16": False}, "warning", "T4"),
        ({}, "optional", "CPU only, 4 threads"),
    ],
)
def test_devices_are_reported_as_torch_sees_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    facts: dict[str, Any],
    standing: str,
    text: str,
) -> None:
    torch_tells(monkeypatch, **facts)
    found = findings(tmp_path)["devices"]
    assert found.standing == standing
    assert found.found.startswith(text)


def test_a_torch_that_cannot_be_imported_is_reported_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_TORCH_PROBE", "raise ImportError('libcuda is too old')")
    found = findings(tmp_path)["devices"]
    assert (found.standing, found.found) == ("optional", "ImportError: libcuda is too old")


def test_a_machine_that_takes_too_long_is_not_one_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_long(command: list[str], **_: Any) -> None:
        raise subprocess.TimeoutExpired(command, 120, stderr=b"warning: slow disk")

    monkeypatch.setattr(doctor.subprocess, "run", too_long)
    found = findings(tmp_path)["devices"]
    assert (found.standing, found.found[:34]) == ("warning", "torch was not imported within 120 ")


def test_a_sandbox_that_does_not_work_is_reported_with_its_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Support(bwrap="", why_not="no bwrap", fix="apt install it", user="", memory="")
    monkeypatch.setattr(sandbox, "probe", lambda: broken)
    found = findings(tmp_path)
    assert (found["sandbox"].standing, found["sandbox"].fix) == ("optional", "apt install it")
    assert "no bwrap" in found["sandbox"].found
    assert not found.keys() & {"sandbox limits", "sandbox disk"}


def test_the_disk_is_that_of_the_runs_also_before_there_are_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []

    def usage(folder: Path) -> SimpleNamespace:
        folders.append(folder)
        return SimpleNamespace(free=5e9)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    found = findings(tmp_path)["disk"]
    assert folders == [tmp_path]
    assert (found.standing, found.found) == ("warning", f"5 GB free at {tmp_path}")


def test_a_key_is_found_in_a_variable_or_a_file_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted")
    (tmp_path / "key").write_text("hf-planted\n")
    monkeypatch.setenv("HF_TOKEN_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("WANDB_API_KEY_FILE", str(tmp_path / "gone"))
    found = findings(tmp_path)
    assert (found["OPENAI_API_KEY"].standing, found["HF_TOKEN"].standing) == ("ok", "ok")
    assert found["WANDB_API_KEY"].standing == "warning"
    assert "WANDB_API_KEY_FILE cannot be read" in found["WANDB_API_KEY"].found
    assert "only needed for models behind OpenRouter" in found["OPENROUTER_API_KEY"].fix
    assert "planted" not in str(found)


def test_a_key_file_that_is_no_text_is_reported_without_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_bytes(b"\xff\xfesecret")
    monkeypatch.setenv("HF_TOKEN_FILE", str(tmp_path / "key"))
    found = key_finding("HF_TOKEN", "gated models")
    assert found.found == "HF_TOKEN_FILE cannot be read: it is not UTF-8"
