"""A run is held to the files it was made of, imported ones too."""

import pytest

from sparring.contracts.errors import RunChanged
from sparring.source_files import code_digest, digests_of, refuse_changed_code


def test_a_changed_import_is_a_changed_run(tmp_path):
    main, helper = tmp_path / "main.py", tmp_path / "helper.py"
    main.write_text("import helper")
    helper.write_text("x = 1")
    target, files = f"{main}:Main", digests_of([main, helper])
    refuse_changed_code("run", target, code_digest(target), files)
    helper.write_text("x = 2")
    with pytest.raises(RunChanged, match=r"helper\.py has changed"):
        refuse_changed_code("run", target, code_digest(target), files)
    with pytest.raises(RunChanged, match="`sparring prove run --accept-changes`"):
        refuse_changed_code("run", target, code_digest(target), files, verb="prove")
    helper.unlink()
    with pytest.raises(RunChanged, match=r"helper\.py"):
        refuse_changed_code("run", target, code_digest(target), files)


def test_runs_of_earlier_versions_are_held_to_their_one_file(tmp_path):
    main = tmp_path / "main.py"
    main.write_text("a")
    target = f"{main}:Main"
    digest = code_digest(target)
    refuse_changed_code("run", target, digest, {})
    main.write_text("b")
    with pytest.raises(RunChanged):
        refuse_changed_code("run", target, digest, {})
    refuse_changed_code("run", target, "", {})
