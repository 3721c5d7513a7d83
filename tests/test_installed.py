"""Installed packages: plugins by name, and the command that installs an extra."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

from sparring import installed
from sparring.contracts.errors import (
    MeasureError,
    MissingPackage,
    SettingError,
    UnknownFamily,
)
from sparring.installed import (
    EXTRAS,
    how_to_install,
    load_plugin,
    plugin_names,
    require_extra,
)
from sparring.measures.judging import resolve
from sparring.policies.families import family_named
from sparring.runs.launchers import launcher_named
from sparring.trackers import known_trackers

CODE = """
from sparring import measure, passed
from sparring.policies.families import Family
from sparring.policies.tool_calls import TaggedJson

family = Family("mine", "{{ messages }}", "<|end|>", TaggedJson())


@measure
def polite(rollout):
    return passed("always")


class Cluster:
    def start(self, folder, epoch):
        return {}

    def look(self, folder, handle, after):
        raise NotImplementedError

    def stop(self, folder, handle):
        return False


class Tracker:
    def __init__(self, run):
        self.link = run.name
"""
ENTRIES = """
[sparring.families]
mine = my_plugin:family
[sparring.launchers]
cluster = my_plugin:Cluster
[sparring.measures]
polite = my_plugin:polite
[sparring.trackers]
board = my_plugin:Tracker
"""


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_plugin.py").write_text(CODE)
    metadata = tmp_path / "my_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_plugin", raising=False)


@pytest.mark.usefixtures("_installed")
def test_each_kind_of_plugin_is_used_by_its_name() -> None:
    assert plugin_names("sparring.launchers") == ["cluster"]
    assert "my_plugin" not in sys.modules, "a name is known without importing the package"
    assert type(launcher_named("cluster")).__name__ == "Cluster"
    assert family_named("mine").end_of_turn == "<|end|>"
    assert resolve("polite").name == "polite"
    assert "board" in known_trackers()


@pytest.mark.usefixtures("_installed")
def test_an_unknown_name_lists_plugins_too() -> None:
    with pytest.raises(SettingError, match="local, slurm, manual, cluster"):
        launcher_named("clutser")
    with pytest.raises(UnknownFamily, match="mine"):
        family_named("mien")
    with pytest.raises(MeasureError, match="polite"):
        resolve("polit")


def test_without_a_plugin_there_is_none() -> None:
    assert load_plugin("sparring.launchers", "cluster") is None


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'sparring[train]'"),
        (
            {"url": "file:///home/ada/my%20code", "dir_info": {"editable": True}},
            "pip install -e '/home/ada/my code[train]'",
        ),
        ({"url": "file:///code", "dir_info": {}}, "pip install '/code[train]'"),
        (
            {"url": "file:///tmp/sparring-0.1.0.whl", "archive_info": {}},
            "pip install '/tmp/sparring-0.1.0.whl[train]'",
        ),
        (
            {"url": "https://host/sparring.git", "vcs_info": {"vcs": "git"}},
            "pip install 'sparring[train] @ git+https://host/sparring.git'",
        ),
    ],
)
def test_an_extra_is_installed_from_where_sparring_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: object, command: str
) -> None:
    metadata = tmp_path / "sparring-9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sparring\nVersion: 9\n")
    if origin is not None:
        (metadata / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert how_to_install("train") == command


def test_an_extra_of_a_source_that_is_not_installed_comes_from_its_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [])
    folder = Path(installed.__file__).parents[2]
    assert how_to_install("local") == f"pip install -e '{folder}[local]'"


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_packages_of_an_extra_are_those_that_it_installs(extra: str) -> None:
    project = Path(__file__).parents[1] / "pyproject.toml"
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]

    def packages(name: str) -> set[str]:
        found: set[str] = set()
        for requirement in extras[name]:
            own, _, inner = requirement.partition("[")
            if own == "sparring":
                found = found.union(*map(packages, inner.rstrip("]").split(",")))
            else:
                found.add(re.split(r"[<>=]", requirement)[0])
        return found

    assert packages(extra) == set(EXTRAS[extra])


def test_a_missing_package_is_named_with_what_needs_it_and_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_extra("train", "`train`")
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(
        MissingPackage, match=r"^`train` needs the extra train \(peft not installed\): pip install "
    ):
        require_extra("train", "`train`")
