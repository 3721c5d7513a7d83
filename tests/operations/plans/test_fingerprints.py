"""A plan's fingerprints change with the files it depends on, and with no others."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sparring.contracts.errors import PlanRefused
from sparring.operations.operation import Caller
from sparring.operations.plans import fingerprints as module
from sparring.operations.plans.fingerprints import fingerprints
from sparring.operations.plans.planning import PlanQuery, PlanRun, plan_run, start_planned
from sparring.operations.resolution import resolve_run
from tests.operations.made import make_project, operator_of


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def operator(owner: Caller) -> Caller:
    return operator_of(owner)


def prints(caller: Caller) -> dict[str, str]:
    return fingerprints(resolve_run("shop", "train", {}, caller))


def changed(caller: Caller, change: Callable[[], object]) -> set[str]:
    """The names of the files whose fingerprints a change changes."""
    before = prints(caller)
    change()
    after = prints(caller)
    names = before.keys() | after.keys()
    return {Path(name).name for name in names if before.get(name) != after.get(name)}


def test_a_module_that_the_environment_imports_is_compared_by_content(owner: Caller) -> None:
    prices = owner.folder / "prices.py"
    assert changed(owner, lambda: prices.write_text("APPLE = 2\n")) == {"prices.py"}
    assert changed(owner, lambda: os.utime(prices, (1, 1))) == set()


def test_data_of_the_same_size_and_time_but_changed_is_found(owner: Caller) -> None:
    cases = owner.folder / "cases.jsonl"
    stat = cases.stat()

    def rewrite() -> None:
        cases.write_text('{"input": "jello"}\n')
        os.utime(cases, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    assert changed(owner, rewrite) == {"cases.jsonl"}


def test_files_that_do_not_belong_to_the_environment_are_not_compared(owner: Caller) -> None:
    def write() -> None:
        for name in (".git/x", "runs/r/y.json", "node_modules/z.js", "__pycache__/a.bin"):
            (owner.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (owner.folder / name).write_text("new")
        (owner.folder / "venv").mkdir()
        (owner.folder / "venv" / "pyvenv.cfg").write_text("")
        (owner.folder / "venv" / "data.txt").write_text("")
        (owner.folder / "out.log").write_text("")
        (owner.folder / ".hidden").write_text("")

    assert changed(owner, write) == set()


def test_a_file_that_the_config_names_is_compared_also_outside_of_the_project(
    owner: Caller, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stock = tmp_path_factory.mktemp("elsewhere") / "stock.txt"
    stock.write_text("pears")
    toml = owner.folder / "sparring.toml"
    toml.write_text(toml.read_text() + f'[environment.shop.config]\nstock = "{stock}"\n')
    assert changed(owner, lambda: stock.write_text("many pears")) == {"stock.txt"}


def test_weights_in_a_folder_are_compared(owner: Caller) -> None:
    weights = owner.folder / ".weights"  # not beside the environment's data
    weights.mkdir()
    (weights / "model.safetensors").write_text("1")
    toml = owner.folder / "sparring.toml"
    toml.write_text(toml.read_text().replace('"tiny"', f'"{weights}"'))
    assert changed(owner, lambda: (weights / "more").write_text("2")) == {".weights"}


def test_many_data_files_share_a_fingerprint_that_notices_each_change(
    owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_LISTED", 3)
    for number in range(5):
        (owner.folder / f"data-{number}.txt").write_text("a")
    last = owner.folder / "data-4.txt"
    assert changed(owner, lambda: last.write_text("bb")) == {"data beside the environment"}


def test_no_more_files_of_a_folder_are_read_than_allowed(
    owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_FILES", 2)
    for number in range(5):
        (owner.folder / f"a-{number}.txt").write_text("a")
    data = {Path(name).name for name in prints(owner) if name.endswith(".txt")}
    assert {"a-0.txt", "a-1.txt"} <= data
    assert "a-2.txt" not in data


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("lazy.py", "def load():\n    import prices2\n"),
        ("prompt.md", None),
        ("cases.db", None),
        ("pkg/mod.py", "VALUE = 1\n"),
    ],
)
def test_a_plan_sees_what_is_imported_late_and_data_of_any_kind(
    operator: Caller, where: str, text: str | None
) -> None:
    folder = operator.folder
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").write_text("")
    (folder / "pkg" / "mod.py").write_text("VALUE = 0\n")
    (folder / "lazy.py").write_text("def load():\n    return 1\n")
    for name in ("prompt.md", "cases.db"):
        (folder / name).write_text("before")
    shop = (folder / "shop.py").read_text()
    (folder / "shop.py").write_text(f"import pkg.mod\n{shop}\ndef f():\n    import lazy\n")
    plan = plan_run(PlanRun(environment="shop"), operator).plan
    (folder / where).write_text(text or "after!")
    with pytest.raises(PlanRefused, match="is out of date"):
        start_planned(PlanQuery(plan=plan), operator)
