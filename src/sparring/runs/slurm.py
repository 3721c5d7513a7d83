"""The Slurm launcher: each supervisor is an `sbatch` job, on one node or several.

The job runs the supervisor on its first node and a host process on each further node. Sampling
servers and players may have separate nodes, as components of a heterogeneous job. A failure that a
restart may fix ends the job with exit code 75. Slurm requeues such a job if `slurm.conf` has
`RequeueExit=75`, and requeues jobs after a node failure. Otherwise, the next operation that reads
the run submits a new job. Slurm only places processes; the state of a run is in its folder.
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sparring.contracts.errors import InvalidInput, LauncherFailed
from sparring.contracts.specs import RunSpec, Table
from sparring.contracts.training import TrainSpec
from sparring.run_folder import RunFolder
from sparring.run_folder.contents import read_run_spec
from sparring.runs.claims import job_of_claim, newest_epoch
from sparring.runs.launchers import Handle, SupervisorPresence, handle_of
from sparring.runs.processes import since_boot

_SECONDS = 30.0
_FRESH_SECONDS = 1.0
_SILENT_SECONDS = 5.0
_LIVE_STATES = frozenset(
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
# Options that Sparring sets, and options that would break it: `look` cannot find jobs submitted
# with `array` or `clusters`, `wait` blocks, and `test-only` submits no job.
_RESERVED_OPTIONS = (
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
_SIZES = ("nodes", "ntasks", "ntasks-per-node")  # allowed in a component
_COMPONENTS = {"servers": "server", "players": "player"}  # table in `slurm`: role


@dataclass(slots=True)
class _Jobs:
    """A short-lived cache of squeue's answer, which covers all runs."""

    requested_at: float = float("-inf")
    states: dict[str, frozenset[str]] | None = None


class Slurm:
    """Starts supervisors with `sbatch`."""

    _jobs: ClassVar[_Jobs] = _Jobs()

    def start(self, folder: RunFolder, epoch: int) -> Handle:
        """Submit a job; the handle contains its id."""
        spec = read_run_spec(folder)
        nodes = spec.nodes if isinstance(spec, TrainSpec) else 1
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
        components = _components(spec)
        for own in components.values():
            command += [":", *_as_options({"nodes": 1, "ntasks-per-node": 1, **own})]
        output = _run(command, stdin=_script(folder, nodes, epoch, tuple(components)))
        self._jobs.requested_at = float("-inf")
        return {"launcher": "slurm", "job": output.strip().partition(";")[0]}

    def look(self, folder: RunFolder, handle: Handle, after: int) -> SupervisorPresence:
        """Check the job submitted last, and the one that claimed the run: it may be another if two
        commands started the run at once. Without a usable answer from the controller, return
        ELSEWHERE, because jobs continue without the controller."""
        newest = newest_epoch(folder)
        jobs = [job_of_claim(folder, newest)] if newest > after else []
        if int(handle.get("epoch", 0)) > after:
            jobs.append(str(handle.get("job") or ""))
        since = float(handle.get("since_boot", 0.0))
        try:
            is_live = any(self._is_live(job, since) for job in jobs if job)
        except (LauncherFailed, OSError, ValueError, KeyError, TypeError, AttributeError):
            return SupervisorPresence.ELSEWHERE
        return SupervisorPresence.YES if is_live else SupervisorPresence.NO

    def _is_live(self, job: str, since: float) -> bool:
        states = self._states().get(job)
        if states is None and self._jobs.requested_at < since:  # the cache predates the job
            self._jobs.requested_at = float("-inf")
            states = self._states().get(job)
        return states is not None and bool(states & _LIVE_STATES)

    def stop(self, folder: RunFolder, handle: Handle) -> bool:
        """Cancel the job if it waits for nodes; the supervisor of a running job reads the stop
        request in the folder. Return whether no other job has claimed the run and is alive."""
        job = str(handle.get("job") or "")
        if not job or not self._states().get(job, frozenset()) & {"PENDING", "CONFIGURING"}:
            return False
        cancel(job)
        claimant = job_of_claim(folder, newest_epoch(folder))
        return claimant in ("", job) or not self._is_live(claimant, 0.0)

    def _states(self) -> dict[str, frozenset[str]]:
        """Return the states of all jobs in squeue, recently ended ones included, by job id."""
        jobs = self._jobs
        fresh = _FRESH_SECONDS if jobs.states is not None else _SILENT_SECONDS
        if since_boot() - jobs.requested_at > fresh:
            jobs.states = None
            try:
                answer = json.loads(_run(["squeue", "--json"], seconds=_SILENT_SECONDS))
                jobs.states = {
                    str(job["job_id"]): _states_of(job["job_state"])
                    for job in answer.get("jobs", ())
                }
            finally:
                jobs.requested_at = since_boot()
        if jobs.states is None:
            raise LauncherFailed("the Slurm controller did not answer the last request; try again")
        return jobs.states


def cancel(job: str) -> None:
    """Cancel a job with `scancel`; raises LauncherFailed if the command fails."""
    _run(["scancel", job])


def _states_of(value: Any) -> frozenset[str]:
    """Return a job's states. Slurm reports one string or, since 23.11, a list, because a failed job
    that is requeued has two states."""
    states = value if isinstance(value, list) else [value]
    return frozenset(str(state).upper() for state in states)


def _given(spec: RunSpec) -> Table:
    """Return sbatch's options for the training nodes."""
    given = spec.supervision.slurm
    options = {name: value for name, value in given.items() if name not in _COMPONENTS}
    _refuse_reserved("slurm", options)
    return options


def _components(spec: RunSpec) -> dict[str, Table]:
    """Return sbatch's options for the components of servers and players, by role; empty for runs
    that start neither."""
    if not isinstance(spec, TrainSpec):
        return {}
    given, sampling = spec.supervision.slurm, spec.settings.sampling
    found: dict[str, Table] = {}
    for table, role in _COMPONENTS.items():
        if table not in given:
            continue
        if not isinstance(given[table], Mapping):
            raise InvalidInput(f"slurm.{table} is a table of sbatch's options, as in {{nodes = 2}}")
        _refuse_reserved(f"slurm.{table}", given[table], but=_SIZES)
        found[role] = dict(given[table])
    if "server" in found and (sampling is None or sampling.servers != "joined"):
        raise InvalidInput("slurm.servers needs sampling.servers = 'joined' (--sampling joined)")
    if "player" in found and spec.services:
        raise InvalidInput(
            "slurm.players needs an environment without services, which answer on one host only"
        )
    if "player" in found and not spec.settings.players:
        raise InvalidInput("slurm.players needs players = 1 or more (--set players=1)")
    return found


def _refuse_reserved(table: str, options: Table, but: Sequence[str] = ()) -> None:
    for name in options:
        # sbatch accepts any unambiguous prefix of an option's name.
        is_reserved = any(option.startswith(name) for option in _RESERVED_OPTIONS)
        if (is_reserved and name not in but) or not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            raise InvalidInput(
                f"{table}.{name} cannot be set: Sparring sets it, or does not support it; remove it"
            )


def _as_options(options: Table) -> list[str]:
    """Return `--name=value` for each option, or `--name` if the value is True."""
    return [
        f"--{name}" if value is True else f"--{name}={value}"
        for name, value in options.items()
        if value not in (None, False)
    ]


def _script(folder: RunFolder, nodes: int, epoch: int, roles: Sequence[str] = ()) -> str:
    """Return the job's script. The supervisor replaces the shell, so that its exit code becomes the
    job's; further hosts and components are job steps that end with it. The script sets no
    environment variables, because sbatch passes them on."""
    path = str(folder.path.resolve())
    command = [sys.executable, "-m", "sparring.runs.slurm", path, str(epoch)]
    others = nodes - 1
    step = ["srun", f"--nodes={others}", f"--ntasks={others}", "--relative=1", "--overlap"]
    steps = [[*step, *command, "host"]] if others else []
    for number, role in enumerate(roles, start=1):
        log = f"{path}/logs/{role}-%t.log"
        step = ["srun", f"--het-group={number}", f"--output={log}", "--open-mode=append"]
        steps.append([*step, *command, role])
    lines = [f"cd {shlex.quote(str(Path.cwd()))} || exit 1"]
    lines += [f"{shlex.join(step)} &" for step in steps]
    return "\n".join(["#!/bin/sh", *lines, f"exec {shlex.join(command)}", ""])


def _run(command: list[str], stdin: str | None = None, seconds: float = _SECONDS) -> str:
    if shutil.which(command[0]) is None:
        raise LauncherFailed(f"{command[0]} was not found; run this on a node of a Slurm cluster")
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise LauncherFailed(f"{command[0]} did not answer within {seconds:g} s") from error
    if done.returncode != 0:
        raise LauncherFailed(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


# ---------------------------------------------------------------------- inside the job


def main(path: str, epoch: str, role: str = "supervisor") -> int:
    """Run one process of the job: the supervisor, the process of a further host, a server or a
    player.

    The supervisor of a new job claims the epoch in the script. After a requeue it claims the next
    free epoch, or exits if the run belongs to another job.
    """
    from sparring.runs import joined_helper
    from sparring.runs.history import read_history
    from sparring.runs.hosts import JoinedHost
    from sparring.runs.lifecycle import RunState
    from sparring.runs.supervisor import supervise

    folder = RunFolder(Path(path))
    if role == "host":
        return JoinedHost(folder, 1 + int(os.environ["SLURM_PROCID"])).run()
    if role in _COMPONENTS.values():
        return joined_helper.main(path, role)
    number, job = int(epoch), os.environ["SLURM_JOB_ID"]
    if int(os.environ.get("SLURM_RESTART_COUNT", 0)):
        newest = newest_epoch(folder)
        is_claimed = newest >= number
        owner = job_of_claim(folder, newest) if is_claimed else handle_of(folder).get("job")
        if job != str(owner):
            return 0
        number = newest + 1
    code = supervise(path, number, relaunches_here=False, job=job)
    if read_history(folder).history.state is RunState.STOPPED:
        cancel(job)  # so that Slurm lists the job as cancelled
        time.sleep(_SECONDS)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
