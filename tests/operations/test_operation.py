"""The registry holds every operation, and each of its names leads to one operation."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from sparring import operations
from sparring.contracts.errors import NotPermitted
from sparring.contracts.specs import Frozen
from sparring.operations.operation import Caller, Role, all_operations
from sparring.run_folder import RunFolder

REGISTRY = all_operations()


def test_every_operation_says_what_it_takes_gives_and_does():
    assert set(REGISTRY) >= {"eval.start", "train.start", "run.list", "run.show"}
    for operation in REGISTRY.values():
        assert issubclass(operation.request, Frozen)
        assert issubclass(operation.result, Frozen)
        assert operation.summary.endswith((".", ","))


def test_a_role_below_the_operations_is_refused(tmp_path):
    operation = REGISTRY["eval.start"]
    viewer = Caller(Role.VIEWER, tmp_path, "guest")
    with pytest.raises(NotPermitted, match="needs the role operator, and guest is viewer"):
        operation(operation.request(environment="x.py:X"), viewer)


def test_held_out_reasons_are_for_the_owner_only(tmp_path):
    from sparring.run_folder.files import write_json

    folder = RunFolder(tmp_path / "run")
    folder.create({"format": 1, "kind": "eval"})
    secret = {"count": 1, "reason": "expected 'the secret'", "shape": "expected …"}
    measure = {"pass_rate": {"value": 0.5}, "reasons_for_failing": [secret]}
    summary = {"split": "held-out", "measures": {"m": measure}, "causes": [secret]}
    write_json(folder.summary, summary)
    read = REGISTRY["run.results"]
    shown = {
        role: read(read.request(run="run"), Caller(role, tmp_path, name)).model_dump_json()
        for role, name in ((Role.VIEWER, "guest"), (Role.OWNER, "owner"))
    }
    assert "secret" not in shown[Role.VIEWER]
    assert "0.5" in shown[Role.VIEWER]
    assert "secret" in shown[Role.OWNER]


def declared() -> set[str]:
    """The names that the modules of the package declare."""
    names = set()
    for path in Path(operations.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                names |= {
                    call.args[0].value
                    for call in node.decorator_list
                    if isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Name)
                    and call.func.id == "operation"
                    and isinstance(call.args[0], ast.Constant)
                }
    return names


def test_no_operation_is_declared_that_the_registry_does_not_hold() -> None:
    assert declared() == set(REGISTRY)


def test_operations_are_sorted_and_known_by_their_own_names() -> None:
    assert list(REGISTRY) == sorted(REGISTRY)
    assert all(name == operation.name for name, operation in REGISTRY.items())


def test_changing_the_returned_table_does_not_change_the_registry() -> None:
    table = all_operations()
    assert isinstance(table, dict)
    table.clear()
    assert set(all_operations()) == set(REGISTRY)


def test_no_two_operations_share_a_command_or_a_tool() -> None:
    for surface in ("cli", "tool"):
        names = [getattr(each.forms, surface) for each in REGISTRY.values()]
        used = [name for name in names if name]
        assert len(set(used)) == len(used), surface


def test_a_viewer_changes_nothing_and_a_start_or_an_end_is_a_change() -> None:
    for operation in REGISTRY.values():
        if operation.role is Role.VIEWER:
            assert not operation.changes_state
        if operation.starts or operation.ends:
            assert operation.changes_state
