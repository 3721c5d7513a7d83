"""A real Slurm on this machine, for tests: munged, slurmctld and two slurmd, all of our own.

Installed by `make slurm`; started here, on free ports, with all of its state in one folder.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

CONFIG = """
ClusterName=sparring
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=1,sched_interval=1,requeue_setup_env_fail
MpiDefault=none
ReturnToService=2
JobRequeue=1
RequeueExit=75
MinJobAge=600
KillWait=5
SlurmdTimeout=8
SlurmctldTimeout=10
InactiveLimit=0
PropagateResourceLimits=NONE
NodeName=n0 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=2
PartitionName=all Nodes=n[0-1] Default=YES MaxTime=INFINITE State=UP
"""


def is_installed() -> bool:
    return os.geteuid() == 0 and all(map(shutil.which, ("slurmctld", "slurmd", "munged", "sbatch")))


class Cluster:
    """Up inside of a `with`; `environment` leads Slurm's commands to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    def __enter__(self) -> Cluster:
        controller, first, second = _free_ports(3)
        host = socket.gethostname()
        text = CONFIG.format(
            folder=self.folder, host=host, controller=controller, first=first, second=second
        )
        (self.folder / "state").mkdir(parents=True)
        (self.folder / "slurm.conf").write_text(text)
        self.folder.chmod(0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self._start(
            "munged",
            *(
                "--foreground",
                "--force",
                f"--key-file={key}",
                f"--socket={self.folder}/munge.socket",
            ),
            *(f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log"),
            *("--seed-file", str(self.folder / "munged.seed")),
        )
        self.start_controller()
        for node in ("n0", "n1"):
            self.start_node(node)
        self._wait(lambda: self.node_states() == {"n0": "idle", "n1": "idle"})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for job in self.jobs():
            self.run("scancel", str(job["job_id"]), check=False)
        time.sleep(0.5)
        for process in reversed(self._processes.values()):
            process.kill()
            process.wait()

    # ------------------------------------------------------------------ its parts

    def start_controller(self) -> None:
        self._start("slurmctld", "-D", "-i")
        self._wait(lambda: self.run("scontrol", "ping", check=False).returncode == 0)

    def start_node(self, name: str) -> None:
        (self.folder / f"spool.{name}").mkdir(exist_ok=True)
        self._start(f"slurmd.{name}", "-D", "-N", name)

    def empty(self) -> None:
        """Cancel what an earlier test has left, and take nodes back that Slurm has drained: after a
        controller was lost, it finds a job that it does not expect."""
        for job in self.jobs():
            self.run("scancel", str(job["job_id"]), check=False)
        for name in ("n0", "n1"):
            self.run("scontrol", "update", f"nodename={name}", "state=resume", check=False)
        self._wait(lambda: self.node_states() == {"n0": "idle", "n1": "idle"})

    def kill(self, part: str) -> None:
        """`slurmctld`, or `slurmd.n0`: at once."""
        process = self._processes.pop(part)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def node_states(self) -> dict[str, str]:
        output = self.run("sinfo", "-h", "-N", "-o", "%N %T", check=False).stdout
        return dict(line.split() for line in output.splitlines())

    def jobs(self) -> list[dict[str, Any]]:
        output = self.run("squeue", "--json", check=False).stdout
        return list(json.loads(output)["jobs"]) if output.strip() else []

    def state_of(self, job: str) -> str:
        output = self.run("scontrol", "show", "job", job, check=False).stdout
        return output.partition("JobState=")[2].split()[0] if "JobState=" in output else ""

    def restarts_of(self, job: str) -> int:
        output = self.run("scontrol", "show", "job", job).stdout
        return int(output.partition("Restarts=")[2].split()[0])

    def components_of(self, job: str) -> int:
        shown = self.run("scontrol", "show", "job", job).stdout
        return shown.count(f"HetJobId={job} ")

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=check, timeout=30
        )

    def _start(self, name: str, *options: str) -> None:
        program = shutil.which(name.partition(".")[0])
        assert program is not None
        log = (self.folder / f"{name}.out").open("ab")
        environment = {**os.environ, **self.environment}
        self._processes[name] = subprocess.Popen(
            [program, *options], env=environment, stdout=log, stderr=log, start_new_session=True
        )
        log.close()

    def _wait(self, what: Any, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            logs = "\n".join(
                f"{path.name}: {path.read_text()[-800:]}" for path in self.folder.glob("*.out")
            )
            assert time.monotonic() < deadline, logs
            time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
