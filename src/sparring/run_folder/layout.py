"""Every file name of a run, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.contracts.errors import NewerFormat, RunNotFound
from sparring.contracts.specs import FORMAT
from sparring.run_folder.files import read_json, write_json

RANK = "rank-"
NULL_PLAYERS = "null-players"
CASES = "cases"  # the log of the process that reads them


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The truth about one run. Any index can be rebuilt from folders like this."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def spec(self) -> Path:
        return self.path / "spec.json"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def heartbeat(self) -> Path:
        return self.path / "heartbeat.json"

    @property
    def summary(self) -> Path:
        return self.path / "report" / "summary.json"

    @property
    def lock(self) -> Path:
        return self.path / "worker.lock"

    def rollouts(self, rank: int = 0) -> Path:
        """Each rank appends to shards of its own."""
        return self.rollouts_of(f"{RANK}{rank}")

    def rollouts_of(self, player: str) -> Path:
        """Of one of several players: the base or the trained model, a model that is compared."""
        return self.path / "rollouts" / player

    def rollout_logs(self) -> list[Path]:
        """Ranks by number, then players by name; that of rank 0 even where nothing was played."""
        names = {path.name for path in (self.path / "rollouts").glob("*") if path.is_dir()}
        ranks = {name for name in names if name.startswith(RANK)}
        if not names:
            ranks = {f"{RANK}0"}
        by_number = sorted(ranks, key=lambda name: int(name.removeprefix(RANK)))
        return [self.rollouts_of(name) for name in (*by_number, *sorted(names - ranks))]

    def validation_rollouts(self, rank: int = 0) -> Path:
        """Rollouts by which checkpoints are picked, kept apart from those learned from."""
        return self.path / "validation" / f"rank-{rank}"

    def demonstrations(self, rank: int = 0) -> Path:
        """What a warm start learned from, played out."""
        return self.path / "demonstrations" / f"rank-{rank}"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def stop_request(self) -> Path:
        """Somebody wants the run to stop; every rank can see it, on every host."""
        return self.path / "stop.json"

    @property
    def passes(self) -> Path:
        """How many rows go through the model at once, as was chosen when the run began."""
        return self.path / "passes.json"

    @property
    def services(self) -> Path:
        """Where the environment's services are, as told by whoever started them."""
        return self.path / "services.json"

    def pulse(self, rank: int) -> Path:
        """That a rank lives, how much it has done, and what it is doing."""
        return self.path / "pulses" / f"rank-{rank}.json"

    @property
    def epochs(self) -> Path:
        """Who has supervised the run: one file for each takeover."""
        return self.path / "epochs"

    @property
    def supervisor(self) -> Path:
        """That the supervisor lives, and how each process is."""
        return self.path / "supervisor.json"

    @property
    def launch(self) -> Path:
        """How the supervisor was started, and where to look for it."""
        return self.path / "launch.json"

    @property
    def gang(self) -> Path:
        """The attempt that is on: its number, and where its processes meet."""
        return self.path / "gang.json"

    def host(self, number: int) -> Path:
        """What one of several hosts tells of its processes."""
        return self.path / "hosts" / f"host-{number}.json"

    @property
    def reserve(self) -> Path:
        """Room for the last words of a run whose disk is full."""
        return self.path / ".reserve"

    @property
    def proofs(self) -> Path:
        """Every proof that was made in this folder of runs, and on which cases."""
        return self.path.parent / ".sparring" / "proofs.jsonl"

    @property
    def report(self) -> Path:
        return self.path / "report" / "report.html"

    @property
    def report_text(self) -> Path:
        return self.path / "report" / "report.md"

    @property
    def journal(self) -> Path:
        """Which runs of this folder had news, in order, for whoever keeps an index of them."""
        return self.path.parent / ".sparring" / "journal.jsonl"

    def log(self, attempt: int, process: str = "worker") -> Path:
        return self.path / "logs" / f"attempt-{attempt}" / f"{process}.log"

    def attempts(self) -> int:
        logs = self.path / "logs"
        return len(list(logs.glob("attempt-*"))) if logs.is_dir() else 0

    def create(self, spec: dict[str, Any]) -> None:
        self.path.mkdir(parents=True, exist_ok=False)
        write_json(self.spec, spec)

    def read_spec(self) -> dict[str, Any]:
        if not self.spec.is_file():
            raise RunNotFound(
                f"there is no run at {self.path}: it has no spec.json; give the folder of a run"
            )
        spec = read_json(self.spec)
        if spec.get("format", 0) > FORMAT:
            raise NewerFormat(
                f"{self.spec} has format {spec['format']}, this Sparring reads up to {FORMAT}; "
                "upgrade with `pip install -U sparring`"
            )
        return spec
