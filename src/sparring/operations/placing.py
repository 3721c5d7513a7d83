"""Operations for supervisors that a scheduler starts: supervise a run, render a manifest."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field

from sparring.contracts.command_line import OnCommandLine
from sparring.contracts.errors import IllegalMove, InvalidInput
from sparring.contracts.json import JsonObject
from sparring.contracts.specs import Frozen
from sparring.contracts.training import TrainSpec
from sparring.operations.operation import Caller, Forms, Role, operation
from sparring.operations.run_views import RunQuery
from sparring.run_folder.contents import read_run_spec
from sparring.runs.claims import newest_epoch
from sparring.runs.finding import find_run
from sparring.runs.history import read_history
from sparring.runs.launchers import SupervisorPresence, find_supervisor
from sparring.runs.supervisor import HOST_NAME

_MAX_NAME = 50  # Kubernetes allows 63, including the pod's number
_SCRIPT = """\
if [ "$JOB_COMPLETION_INDEX" = 0 ]; then exec sparring run supervise {run} --runs {runs}; fi
exec sparring run join {run} --wait --runs {runs}
"""


class Supervised(Frozen):
    """A run, and the epoch at which this process supervises it, unless it has ended."""

    run: str
    folder: str
    epoch: int
    has_ended: bool = False


class RenderManifest(RunQuery):
    """The run, and the image, volume and GPUs of its pods."""

    image: Annotated[str, OnCommandLine("--image")] = Field(
        description="container image with Sparring and the project's packages"
    )
    claim: Annotated[str, OnCommandLine("--claim")] = Field(
        description="name of the persistent volume claim that all pods share"
    )
    mount: str = Field(
        default="", description="path of the volume in the pods; default: the project's folder"
    )
    gpus: int = Field(default=0, ge=0, description="GPUs of each pod")
    namespace: str = Field(default="default", description="namespace of the job")


class Manifest(Frozen):
    """A Kubernetes manifest."""

    run: str
    manifest: str


@operation("run.supervise", role=Role.OWNER, changes_state=True, forms=Forms(cli="run supervise"))
def supervise_run(request: RunQuery, caller: Caller) -> Supervised:
    """Prepare to supervise a run in this process, which a scheduler has started."""
    folder = find_run(caller.runs, request.run)
    has_ended = read_history(folder).history.state.has_ended
    if not has_ended and find_supervisor(folder) is SupervisorPresence.YES:
        raise IllegalMove(
            f"run {folder.id} already has a supervisor; `sparring run watch {folder.id}` follows it"
        )
    return Supervised(
        run=folder.id,
        folder=str(folder.path.resolve()),
        epoch=newest_epoch(folder) + 1,
        has_ended=has_ended,
    )


@operation("run.manifest", role=Role.OWNER, changes_state=False, forms=Forms(cli="run manifest"))
def render_manifest(request: RenderManifest, caller: Caller) -> Manifest:
    """Render the Kubernetes manifest of a run that was started with `--launcher manual`."""
    folder = find_run(caller.runs, request.run)
    spec = read_run_spec(folder)
    if spec.supervision.launcher != "manual":
        raise InvalidInput(
            f"run {folder.id} has the launcher {spec.supervision.launcher}; start a new run "
            "with --launcher manual, so that Kubernetes can start its supervisor"
        )
    nodes = spec.nodes if isinstance(spec, TrainSpec) else 1
    name = re.sub(r"[^a-z0-9-]+", "-", folder.id.lower()).strip("-")[-_MAX_NAME:].strip("-")
    project = str((caller.folder or Path()).resolve())
    runs = str(caller.runs.resolve())
    script = _SCRIPT.format(run=shlex.quote(folder.id), runs=shlex.quote(runs))
    documents = [_service(name, request.namespace), _job(name, request, nodes, project, script)]
    return Manifest(run=folder.id, manifest=yaml.safe_dump_all(documents, sort_keys=False))


def _service(name: str, namespace: str) -> JsonObject:
    """Return a headless service, which gives every pod a DNS name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"job-name": name},
        },
    }


def _job(name: str, request: RenderManifest, nodes: int, project: str, script: str) -> JsonObject:
    """Return an indexed job: pod 0 supervises the run, the others join it."""
    container: JsonObject = {
        "name": "sparring",
        "image": request.image,
        "workingDir": project,
        "command": ["/bin/sh", "-c", script],
        "env": [{"name": HOST_NAME, "value": f"{name}-0.{name}"}],
        "volumeMounts": [
            {"name": "project", "mountPath": request.mount or project},
            {"name": "memory", "mountPath": "/dev/shm"},  # noqa: S108 - torch shares tensors there
        ],
    }
    if request.gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": request.gpus}}
    pod = {
        "restartPolicy": "OnFailure",
        "subdomain": name,
        "containers": [container],
        "volumes": [
            {"name": "project", "persistentVolumeClaim": {"claimName": request.claim}},
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
        ],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": request.namespace, "labels": {"app": "sparring"}},
        "spec": {
            "completionMode": "Indexed",
            "completions": nodes,
            "parallelism": nodes,
            "backoffLimit": 100,
            "template": {"metadata": {"labels": {"app": "sparring"}}, "spec": pod},
        },
    }
