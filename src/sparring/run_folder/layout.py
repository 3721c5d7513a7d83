"""The ids of runs, and the path of every file of a run."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.errors import NewerFormat, RunNotFound
from sparring.contracts.json import JsonObject
from sparring.contracts.specs import FORMAT
from sparring.run_folder.files import read_json, read_json_or_empty, write_json

RANK = "rank-"
NULL_PLAYERS = "null-players"
CASES = "cases"  # name of the case loader's log


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run, with the path of each file. The index can be rebuilt from it."""

    path: Path

    @property
    def id(self) -> str:
        """The run's id, which is the folder's name."""
        return self.path.name

    @property
    def spec(self) -> Path:
        """The frozen description of the run."""
        return self.path / "spec.json"

    @property
    def events(self) -> Path:
        """The run's history: states, alerts and changes, append-only."""
        return self.path / "events.jsonl"

    @property
    def metrics(self) -> Path:
        """Metrics, one row per attempt and step."""
        return self.path / "metrics.jsonl"

    @property
    def heartbeat(self) -> Path:
        """The run's current progress, rewritten as it advances."""
        return self.path / "heartbeat.json"

    @property
    def summary(self) -> Path:
        """The results of the run, as JSON."""
        return self.path / "report" / "summary.json"

    @property
    def lock(self) -> Path:
        """The lock that a process holds while it works on the run."""
        return self.path / "worker.lock"

    def rollouts(self, rank: int = 0) -> Path:
        """Return the rollout log of one rank."""
        return self.rollouts_of(f"{RANK}{rank}")

    def rollouts_of(self, player: str) -> Path:
        """Return the rollout log of one player, such as the base or the trained model of a
        proof."""
        return self.path / "rollouts" / player

    def rollout_logs(self, log: str = "rollouts") -> list[Path]:
        """Return all rollout logs: ranks by number, then players by name; rank 0's path if there
        are none. `log` is `rollouts`, `validation` or `demonstrations`."""
        names = {path.name for path in (self.path / log).glob("*") if path.is_dir()}
        ranks = {name for name in names if name.startswith(RANK)}
        if not names:
            ranks = {f"{RANK}0"}
        by_number = sorted(ranks, key=lambda name: int(name.removeprefix(RANK)))
        return [self.path / log / name for name in (*by_number, *sorted(names - ranks))]

    def validation_rollouts(self, rank: int = 0) -> Path:
        """Return one rank's log of validation rollouts, by which checkpoints are selected."""
        return self.path / "validation" / f"rank-{rank}"

    def demonstrations(self, rank: int = 0) -> Path:
        """Return one rank's log of the rollouts that a warm start learns from."""
        return self.path / "demonstrations" / f"rank-{rank}"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints, each in `step-N`."""
        return self.path / "checkpoints"

    @property
    def stop_request(self) -> Path:
        """The stop request, which every rank on every host polls."""
        return self.path / "stop.json"

    @property
    def passes(self) -> Path:
        """The number of rows per forward pass, chosen at the start of the run."""
        return self.path / "passes.json"

    @property
    def services(self) -> Path:
        """Addresses of the environment's services, written by the process that started them."""
        return self.path / "services.json"

    @property
    def policies(self) -> Path:
        """The weights that sampling servers serve, one folder per version."""
        return self.path / "policies"

    @property
    def sampling(self) -> Path:
        """Addresses of the sampling servers that the run started."""
        return self.path / "sampling.json"

    @property
    def servers(self) -> Path:
        """Addresses of the sampling servers that joined from other hosts, and their key."""
        return self.path / "servers"

    @property
    def orders(self) -> Path:
        """Orders from ranks to player processes, and their results."""
        return self.path / "orders"

    def rank_heartbeat(self, rank: int) -> Path:
        """Return the heartbeat file of one rank, with its progress and current activity."""
        return self.path / "heartbeats" / f"rank-{rank}.json"

    @property
    def epochs(self) -> Path:
        """The folder of claims: one file per supervisor of the run."""
        return self.path / "epochs"

    @property
    def supervisor(self) -> Path:
        """The supervisor's heartbeat, with the state of each process."""
        return self.path / "supervisor.json"

    @property
    def launch(self) -> Path:
        """The launcher's handle for the last supervisor that it started."""
        return self.path / "launch.json"

    @property
    def workers(self) -> Path:
        """The current attempt: its number, its rendezvous address and its size."""
        return self.path / "workers.json"

    def host(self, number: int) -> Path:
        """Return the report file of one further host, with the states of its processes."""
        return self.path / "hosts" / f"host-{number}.json"

    @property
    def reserve(self) -> Path:
        """A file that reserves disk space; deleting it makes room for events on a full disk."""
        return self.path / ".reserve"

    @property
    def proofs(self) -> Path:
        """The ledger of looks at held-out cases, shared by all runs of the folder."""
        return self.path.parent / ".sparring" / "proofs.jsonl"

    @property
    def report(self) -> Path:
        """The report as HTML."""
        return self.path / "report" / "report.html"

    @property
    def card(self) -> Path:
        """The results of a proof, in Markdown."""
        return self.path / "report" / "report.md"

    @property
    def journal(self) -> Path:
        """The ids of changed runs, appended by all runs of the folder and read by the index."""
        return self.path.parent / ".sparring" / "journal.jsonl"

    def log(self, attempt: int, process: str = "worker") -> Path:
        """Return the log of one process of one attempt."""
        return self.path / "logs" / f"attempt-{attempt}" / f"{process}.log"

    def attempts(self) -> int:
        """Return the number of attempts that have logs."""
        logs = self.path / "logs"
        return len(list(logs.glob("attempt-*"))) if logs.is_dir() else 0

    def create(self, spec: JsonObject) -> None:
        """Create the folder and write the spec; fails if the folder exists."""
        self.path.mkdir(parents=True, exist_ok=False)
        write_json(self.spec, spec)

    def read_spec(self) -> JsonObject:
        """Return the spec. Raises RunNotFound if there is none, NewerFormat if it is too new."""
        if not self.spec.is_file():
            raise RunNotFound(
                f"there is no run at {self.path}: it has no spec.json; give the folder of a run"
            )
        spec = read_json(self.spec)
        if spec.get("format", 0) > FORMAT:
            raise NewerFormat(
                f"{self.spec} has format {spec['format']}, this Sparring reads up to {FORMAT}; "
                "upgrade Sparring on this machine"
            )
        return spec


def new_run_id(name: str, now: float, token: str) -> str:
    """Return an id such as `calculator-20261115-093012-1f2e`."""
    return f"{slug(name)}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{token}"


def slug(name: str) -> str:
    """Return a name as run ids contain it: lower case, hyphens, at most 40 characters."""
    return hyphenated(name)[:40] or "run"


def shipped_name(environment: str, run: str) -> str:
    """Return the default name of the folder that a training is shipped to."""
    return f"{slug(environment)}-{run.rpartition('-')[2]}"


def hyphenated(name: str) -> str:
    """Return a name, or the beginning of an id, in lower case and with hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def is_id(name: str) -> bool:
    """Whether a name has the form of a whole id."""
    return re.fullmatch(r".+-\d{8}-\d{6}-[0-9a-f]+", name) is not None


def is_plain_name(name: str) -> bool:
    """Whether a name is safe as one part of a path: no separator, leading dot or glob pattern."""
    return re.fullmatch(r"[A-Za-z0-9][\w.\-]{0,199}", name) is not None


def is_run_of(run: str, name: str) -> bool:
    """Whether `run` has the form of an id that `new_run_id` makes from `name`."""
    return re.fullmatch(re.escape(slug(name)) + r"-\d{8}-\d{6}-[0-9a-f]+", run) is not None


def short_id(run: str) -> str:
    """Return the token of an id, by which the run can also be found. The prefix `proof-` or `ship-`
    is kept."""
    match = re.fullmatch(r"(proof-|ship-)?.*-\d{8}-\d{6}-([0-9a-f]{4,})", run)
    return f"{match[1] or ''}{match[2]}" if match else run


def whole_path(path: Path) -> Path:
    """Return the folder of the training run that `path` names by the end of its id. A path that
    exists, or that no training or several match, is returned unchanged."""
    found = trainings_named(path)
    return found[0] if len(found) == 1 else path


def existing_folder(path: Path) -> Path | None:
    """Return `whole_path` of a path if it is a folder, else None."""
    whole = whole_path(path)
    try:
        return whole if whole.is_dir() else None
    except OSError:  # such as a name that is too long
        return None


def trainings_named(path: Path) -> list[Path]:
    """Return the training runs beside `path` whose id ends with its name, sorted; none if `path`
    exists or its folder cannot be read."""
    try:
        beside = [] if path.exists() else list(path.parent.iterdir())
    except OSError:
        return []
    named = [each for each in beside if path.name and each.name.endswith(f"-{path.name}")]
    return sorted(
        each for each in named if read_json_or_empty(each / "spec.json").get("kind") == "train"
    )
