import pytest

from sparring.contracts.errors import NotPermitted
from sparring.contracts.specs import Frozen
from sparring.operations.operation import Caller, Role
from sparring.operations.registry import all_operations
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
