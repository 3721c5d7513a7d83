"""Supervisors as Slurm jobs: the same spec by `sbatch`, on one node or several.

The job runs the supervisor on its first node and a host on each further one. What can be tried
again ends the job with exit code 75, which Slurm requeues (`RequeueExit=75`), as it does after
the failure of a node; where it does not, the next operation submits anew. Slurm says where
things run; what a run is, its folder says.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sparring.contracts.errors import InvalidInput, LauncherFailed
from sparring.run_folder import RunFolder
from sparring.runs.launching import Watched, handle_of
from sparring.runs.processes import since_boot

_SECONDS = 30.0
_FRESH_SECONDS = 1.0
_SILENT_SECONDS = 5.0
_ON_ITS_WAY = frozenset(
    {
        "PENDING",
        "RUNNING",
        "CONFIGURING",
        "COMPLETING",
        "SUSPENDED",
        "REQUEUED",
        "REQUEUE_HOLD",
        "SPECIAL_EXIT",
        "SIGNALING",
        "RESIZING",
        "STOPPED",
    }
)
# What the run itself decides; an operator's or a project's word on it would be ignored.
# Nor may it submit several jobs, or jobs elsewhere, which nobody would find again.
_OURS = (
    "job-name",
    "output",
    "open-mode",
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "requeue",
    "no-requeue",
    "parsable",
    "wrap",
    "wait",
    "array",
    "clusters",
    "test-only",
)


@dataclass(slots=True)
class _Jobs:
    """What squeue said last: many runs are asked about at once."""

    asked_at: float = float("-inf")
    states: dict[str, frozenset[str]] | None = None


class Slurm:
    """Starts supervisors with `sbatch`."""

    _jobs: ClassVar[_Jobs] = _Jobs()

    def start(self, folder: RunFolder, epoch: int) -> dict[str, Any]:
        spec = folder.read_spec()
        nodes = int(spec.get("nodes", 1))
        (folder.path / "logs").mkdir(exist_ok=True)
        options = {
            "job-name": folder.id,
            "output": str(folder.path.resolve() / "logs" / "supervisor.log"),
            "open-mode": "append",
            "nodes": nodes,
            "ntasks-per-node": 1,
            "requeue": True,
            **_given(spec),
        }
        command = ["sbatch", "--parsable", *_as_options(options)]
        done = _run(command, stdin=_script(folder, nodes, epoch))
        self._jobs.asked_at = float("-inf")
        return {"launcher": "slurm", "job": done.strip().partition(";")[0]}

    def look(self, folder: RunFolder, handle: dict[str, Any], after: int) -> Watched:
        """A controller that does not answer, or not in words that we know, tells nothing: the job
        goes on without it."""
        del folder
        job = str(handle.get("job") or "")
        if not job or int(handle.get("epoch", 0)) <= after:
            return Watched.NO
        try:
            is_coming = self._is_on_its_way(job, float(handle.get("since_boot", 0.0)))
        except (LauncherFailed, OSError, ValueError, KeyError, TypeError, AttributeError):
            return Watched.ELSEWHERE
        return Watched.YES if is_coming else Watched.NO

    def _is_on_its_way(self, job: str, since: float) -> bool:
        words = self._states().get(job)
        if words is None and self._jobs.asked_at < since:  # asked before it was submitted
            self._jobs.asked_at = float("-inf")
            words = self._states().get(job)
        return words is not None and bool(words & _ON_ITS_WAY)

    def stop(self, folder: RunFolder, handle: dict[str, Any]) -> bool:
        """Cancel a job that still waits for its nodes; a running one finds the wish itself."""
        del folder
        job = str(handle.get("job") or "")
        if not job or not self._states().get(job, frozenset()) & {"PENDING", "CONFIGURING"}:
            return False
        cancel(job)
        return True

    def _states(self) -> dict[str, frozenset[str]]:
        """Of all jobs that the controller remembers, those that just ended among them."""
        jobs = self._jobs
        fresh = _FRESH_SECONDS if jobs.states is not None else _SILENT_SECONDS
        if since_boot() - jobs.asked_at > fresh:
            jobs.states = None
            try:
                told = json.loads(_run(["squeue", "--json"], seconds=_SILENT_SECONDS))
                jobs.states = {
                    str(job["job_id"]): _words_of(job["job_state"]) for job in told.get("jobs", ())
                }
            finally:
                jobs.asked_at = since_boot()
        if jobs.states is None:
            raise LauncherFailed("the controller of Slurm did not answer a moment ago")
        return jobs.states


def cancel(job: str) -> None:
    _run(["scancel", job])


def _words_of(told: Any) -> frozenset[str]:
    """A word, or, since Slurm 23, a list of them: one that failed and is requeued says both."""
    return frozenset(str(each).upper() for each in (told if isinstance(told, list) else [told]))


def _given(spec: dict[str, Any]) -> dict[str, Any]:
    given = dict((spec.get("supervision") or {}).get("slurm") or {})
    for name in given:
        is_ours = any(each.startswith(name) for each in _OURS)  # sbatch takes beginnings of names
        if is_ours or not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            raise InvalidInput(f"slurm.{name}: is set by Sparring, or is no option of sbatch")
    return given


def _as_options(options: dict[str, Any]) -> list[str]:
    """`--name=value`; a name alone for what is simply so."""
    return [
        f"--{name}" if value is True else f"--{name}={value}"
        for name, value in options.items()
        if value not in (None, False)
    ]


def _script(folder: RunFolder, nodes: int, epoch: int) -> str:
    """The supervisor is the job itself, so that its exit code is the job's; hosts are a step
    beside it, which ends with it. The environment is the submitter's, as with sbatch it is;
    nothing of it is written here."""
    path = str(folder.path.resolve())
    command = [sys.executable, "-m", "sparring.runs.slurm", path, str(epoch)]
    further = nodes - 1
    step = ["srun", f"--nodes={further}", f"--ntasks={further}", "--relative=1", "--overlap"]
    hosts = f"{shlex.join([*step, *command, 'host'])} &\n" if further else ""
    return (
        f"#!/bin/sh\ncd {shlex.quote(str(Path.cwd()))} || exit 1\n{hosts}"
        f"exec {shlex.join(command)}\n"
    )


def _run(command: list[str], stdin: str | None = None, seconds: float = _SECONDS) -> str:
    if shutil.which(command[0]) is None:
        raise LauncherFailed(f"{command[0]} is not there; is this a node of a Slurm cluster?")
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise LauncherFailed(f"{command[0]} has not answered within {seconds:g} s") from error
    if done.returncode != 0:
        raise LauncherFailed(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


# ---------------------------------------------------------------------- inside of the job


def main(path: str, epoch: str, role: str = "supervisor") -> int:
    """On the first node the supervisor, on each further one a host.

    The first time, a job claims the epoch that it was submitted for. When it is requeued it takes
    the next one, but only if the run has not been given to another job meanwhile.
    """
    from sparring.runs.claims import newest_epoch
    from sparring.runs.history import read_history
    from sparring.runs.hosts import JoinedHost
    from sparring.runs.lifecycle import RunState
    from sparring.runs.supervisor import supervise

    folder = RunFolder(Path(path))
    if role == "host":
        return JoinedHost(folder, 1 + int(os.environ["SLURM_PROCID"])).run()
    wanted, job = int(epoch), os.environ["SLURM_JOB_ID"]
    if int(os.environ.get("SLURM_RESTART_COUNT", 0)):
        if str(handle_of(folder).get("job")) != job:
            return 0
        wanted = newest_epoch(folder) + 1
    code = supervise(path, wanted, relaunches_here=False)
    if read_history(folder).history.state is RunState.STOPPED:
        cancel(job)  # so that it is listed as what it is
        time.sleep(_SECONDS)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
