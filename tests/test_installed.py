"""Plugins of installed packages: found by name, imported when used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sparring.contracts.errors import MeasureError, SettingError, UnknownFamily
from sparring.installed import load_plugin, plugin_names
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
