"""Requests and results of the operations on runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from sparring.contracts.command_line import RUN, OnCommandLine
from sparring.contracts.errors import NotFinished
from sparring.contracts.foreign import MIXED, SUMMARY, ForeignText, MixedTable
from sparring.contracts.json import JsonObject, MetricsRow, SummaryJson
from sparring.contracts.kinds import KINDS
from sparring.contracts.specs import Frozen
from sparring.runs.lifecycle import RunState


class RunQuery(Frozen):
    """One run."""

    run: Annotated[str, RUN] = Field(
        description="the run's id, the beginning or end of it, or an environment's name"
    )


class ListRuns(Frozen):
    """Filters on the runs to list."""

    states: Annotated[tuple[RunState, ...], OnCommandLine("--state")] = Field(
        default=(), description="only runs in these states"
    )
    environment: Annotated[str, OnCommandLine("--env", completes="environments")] = Field(
        default="", description="only runs of this environment"
    )
    kind: Annotated[str, Field(json_schema_extra={"enum": ["", *KINDS]})] = Field(
        default="", description="only runs of this kind"
    )
    after: str = Field(
        default="", description="show the runs after this one: `next` of the previous page"
    )
    count: Annotated[int, OnCommandLine(default=20)] = Field(
        default=50, ge=1, le=1000, description="maximum number of runs to show"
    )

    @field_validator("kind")
    @classmethod
    def _is_known(cls, kind: str) -> str:
        if kind not in ("", *KINDS):
            raise ValueError(f"there is no kind {kind!r}; there are {', '.join(KINDS)}")
        return kind


class RunLine(Frozen):
    """One run of a list."""

    run: str
    kind: str
    environment: str
    model: str
    state: RunState
    author: str
    created: float
    minutes: float
    step: int | None = None
    steps: int | None = None
    reward: float | None = None
    message: ForeignText = ""


class RunPage(Frozen):
    """One page of runs."""

    runs: tuple[RunLine, ...]
    next: str = Field(default="", description="pass as `after` for the next page; empty at the end")

    def first(self, count: int) -> RunPage:
        """Return the first runs of the page, with `next` pointing to the rest."""
        if count >= len(self.runs):
            return self
        return RunPage(runs=self.runs[:count], next=self.runs[count - 1].run)


class ProcessLine(Frozen):
    """One process of a run."""

    name: str
    state: str
    pid: int
    host: str
    log: str


class ShownRun(Frozen):
    """The complete state of a run."""

    run: str
    kind: str
    environment: str
    model: str
    folder: str
    state: RunState
    cause: str = ""
    message: ForeignText = ""
    error: Annotated[str, MIXED] = ""
    exit_code: int = 0
    author: str = ""
    minutes: float = 0.0
    attempts: int = 0
    restarts: int = Field(default=0, description="restarts since the last new checkpoint")
    last_restart: ForeignText = ""
    is_stopping_for: str = ""
    processes: tuple[ProcessLine, ...] = ()
    step: int | None = None
    steps: int | None = None
    doing: str = Field(default="", description="the current activity")
    loss: float | None = None
    reward: float | None = None
    pass_rates: Annotated[dict[str, float], MIXED] = Field(default_factory=dict)
    validation_reward: float | None = None
    validation_pass_rates: Annotated[dict[str, float], MIXED] = Field(default_factory=dict)
    seconds_left: float | None = None
    estimate_basis: str = ""
    links: Annotated[dict[str, str], MIXED] = Field(default_factory=dict)
    warning: ForeignText = ""
    proof: str = Field(default="", description="id of the proof that follows this training")
    progress: Annotated[JsonObject | None, MIXED] = None
    next_check_seconds: float = 5.0
    is_repeated: bool = Field(
        default=False, description="true if this repeats the last answer: you polled too soon"
    )

    def short(self) -> ShownRun:
        """Return a copy without the folder and most of the progress."""
        values = {name: (self.progress or {}).get(name) for name in ("doing", "seconds_left")}
        progress = {name: value for name, value in values.items() if value}
        return self.model_copy(update={"progress": progress, "folder": ""})


class Status(Frozen):
    """The state and progress of a run, for a command that follows it."""

    run: str
    kind: str
    state: RunState
    message: ForeignText = ""
    exit_code: int = 0
    error: str = ""
    last_restart: ForeignText = ""
    progress: Annotated[JsonObject | None, MIXED] = None
    doing: str = Field(default="", description="the current activity of rank 0")


class ResultsQuery(RunQuery):
    """The results to show."""

    rows: int = Field(default=10, ge=0, le=1000, description="rows of the metrics history to show")


class Results(Frozen):
    """The results of a run."""

    run: str
    kind: str
    state: RunState
    message: ForeignText = ""
    summary: Annotated[SummaryJson, SUMMARY]
    final: MixedTable = Field(default_factory=dict, description="the last row of metrics")
    history: Annotated[tuple[MetricsRow, ...], MIXED] = ()
    best_checkpoint: str | None = None
    last_checkpoint: str | None = None

    def short(self) -> Results:
        """Return a copy with key metrics only, and the first and last validation."""
        summary = {
            name: value
            for name, value in self.summary.items()
            if name not in _SHOWN_ELSEWHERE and (name != "cases" or isinstance(value, int))
        }
        if isinstance(rows := summary.get("validation"), list):
            summary["validation"] = [_key_metrics(row) for row in (rows[:1] + rows[1:][-1:])]
        update = {
            "summary": summary,
            "final": _key_metrics(self.final),
            "history": tuple(_key_metrics(row, is_brief=True) for row in self.history),
        }
        return self.model_copy(update=update)


class WaitFor(RunQuery):
    """The run to wait for, the kind of news, and the timeout."""

    since: int | None = Field(
        default=0,
        ge=0,
        lt=2**62,
        description="`cursor` of the previous answer, for later news only; null: from now",
    )
    timeout: float = Field(default=45.0, ge=0, le=45, description="maximum number of seconds")
    until: Literal["news", "end"] = Field(
        default="news", description="news: a new state, warning or checkpoint; end: the end only"
    )


class News(Frozen):
    """The state of a run, and the news since the cursor."""

    run: str
    state: RunState
    has_ended: bool
    exit_code: int = Field(
        default=NotFinished.exit_code,
        description="0: completed; 101: not ended; 103: stopped; other codes: failed",
    )
    step: int | None = Field(default=None, description="training step, or rollouts played")
    steps: int | None = None
    reward: float | None = None
    message: ForeignText
    news: Annotated[tuple[JsonObject, ...], MIXED]
    cursor: int = Field(description="pass as `since` to get only later news")

    def short(self) -> News:
        """Return the news without technical fields."""
        technical = ("epoch", "runs_at_once", "attempt", "time", "tokens", "dtype")
        news = tuple(
            {name: value for name, value in each.items() if name not in technical}
            for each in self.news
        )
        return self.model_copy(update={"news": news})


class LogQuery(RunQuery):
    """The log to read, and the number of lines."""

    process: str = Field(
        default="",
        description="name of the process, as the shown run lists it; default: the first rank",
    )
    attempt: int | None = Field(
        default=None, ge=1, description="number of the attempt; default: the last"
    )
    lines: Annotated[int, OnCommandLine("-n --lines")] = Field(
        default=40, ge=1, le=10_000, description="maximum number of lines, counted from the end"
    )


class Log(Frozen):
    """The end of one log of a run."""

    run: str
    process: str
    attempt: int
    path: str
    there_are: tuple[str, ...]
    text: ForeignText


class Reindexed(Frozen):
    """The number of runs in the new index."""

    runs: int


_SHOWN_ELSEWHERE = frozenset(
    {"run", "kind", "last", "cases_digest", "best_checkpoint", "last_checkpoint"}
)
_BRIEF_METRICS = ("step", "reward", "validation/reward", "pass_rate/", "validation/pass_rate/")
_MORE_METRICS = ("loss", "live_groups", "truncated", "unscored", "call_rate", "kl", "seconds")


def _key_metrics(row: MetricsRow, *, is_brief: bool = False) -> MetricsRow:
    """Return the key metrics of a row; if `is_brief`, only step, rewards and pass rates."""
    wanted = _BRIEF_METRICS if is_brief else (*_BRIEF_METRICS, *_MORE_METRICS)
    return {
        name: value
        for name, value in row.items()
        if name in wanted or name.startswith(("pass_rate/", "validation/pass_rate/"))
    }
