"""Runs whose supervisor a scheduler starts: what it starts, and the manifest for Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sparring.contracts.errors import IllegalMove, InvalidInput
from sparring.contracts.specs import PolicySpec, Supervision
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.operations.operation import Caller, Role
from sparring.operations.placing import RenderManifest, render_manifest, supervise_run
from sparring.operations.run_control import stop_run
from sparring.operations.run_views import RunQuery
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_state
from sparring.runs.claims import claim
from sparring.runs.history import read_history
from sparring.runs.launchers import SupervisorPresence, find_supervisor
from sparring.runs.lifecycle import RunState

RUN = "Desk_Agent-20261117-101010-abcd"


def queued(place: Path, launcher: str = "manual", nodes: int = 4) -> tuple[RunFolder, Caller]:
    folder = RunFolder(place / "runs" / RUN)
    spec = TrainSpec(
        target="agent.py:Task",
        environment="desk",
        policy=PolicySpec(model="model"),
        settings=TrainSettings(),
        supervision=Supervision(launcher=launcher),
        nodes=nodes,
        rendezvous="host0:29500",
    )
    folder.create(spec.model_dump(mode="json"))
    append_state(folder, RunState.QUEUED, author="test")
    return folder, Caller(Role.OWNER, place / "runs", folder=place)


def rendered(place: Path, caller: Caller, **fields: Any) -> list[dict[str, Any]]:
    del place
    request = RenderManifest(run=RUN, image="team/agent:1", claim="shared", **fields)
    return list(yaml.safe_load_all(render_manifest(request, caller).manifest))


def test_pod_0_supervises_the_run_and_the_others_join_it(tmp_path: Path) -> None:
    folder, caller = queued(tmp_path)
    service, job = rendered(tmp_path, caller, gpus=8)
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (4, 4)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    script = container["command"][-1]
    assert f"sparring run supervise {RUN} --runs {folder.path.parent}" in script
    assert f"sparring run join {RUN} --wait" in script
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    name = service["metadata"]["name"]
    assert container["env"] == [{"name": "SPARRING_HOST", "value": f"{name}-0.{name}"}]
    assert pod["subdomain"] == name == job["metadata"]["name"]


def test_names_are_valid_where_ids_are_not(tmp_path: Path) -> None:
    _, caller = queued(tmp_path)
    service, _ = rendered(tmp_path, caller)
    assert service["metadata"]["name"] == RUN.lower().replace("_", "-")


@pytest.mark.nightly
def test_kubernetes_own_schemas_accept_the_manifest(tmp_path: Path) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    _, caller = queued(tmp_path)
    for document in rendered(tmp_path, caller, gpus=8):
        validate.validate(document, "1.30", strict=True)


def test_a_run_with_another_launcher_has_no_manifest(tmp_path: Path) -> None:
    _, caller = queued(tmp_path, launcher="local")
    with pytest.raises(InvalidInput, match="--launcher manual"):
        rendered(tmp_path, caller)


def test_a_scheduler_supervises_the_next_epoch_of_a_run_that_nobody_supervises(
    tmp_path: Path,
) -> None:
    folder, caller = queued(tmp_path)
    assert find_supervisor(folder) is SupervisorPresence.ELSEWHERE
    assert supervise_run(RunQuery(run=RUN), caller).epoch == 1
    assert claim(folder, 1)
    with pytest.raises(IllegalMove, match="already has a supervisor"):
        supervise_run(RunQuery(run=RUN), caller)
    append_state(folder, RunState.STOPPED, author="test")
    assert supervise_run(RunQuery(run=RUN), caller).has_ended


def test_a_run_that_no_scheduler_has_started_is_stopped_at_once(tmp_path: Path) -> None:
    folder, caller = queued(tmp_path)
    stop_run(RunQuery(run=RUN), caller)
    assert read_history(folder).history.state is RunState.STOPPED
