"""What is asked and answered about runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from sparring.contracts.errors import NotFinished
from sparring.contracts.foreign import MIXED, SUMMARY, ForeignText, MixedTable
from sparring.contracts.specs import Frozen
from sparring.runs.lifecycle import RunState


class RunQuery(Frozen):
    run: str = Field(description="id, the beginning of it, or the name of its environment")


class ListRuns(Frozen):
    states: tuple[RunState, ...] = Field(default=(), description="only in these")
    environment: str = Field(default="", description="only of this one")
    kind: Literal["", "train", "eval", "check", "audit", "prove"] = Field(
        default="", description="only of this kind"
    )
    after: str = Field(default="", description="the last id of the page before")
    count: int = Field(default=50, ge=1, le=1000, description="at most so many")


class RunLine(Frozen):
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
    runs: tuple[RunLine, ...]
    next: str = Field(default="", description="pass as `after` for the next page; empty at the end")

    def first(self, count: int) -> RunPage:
        """The beginning of the page, with the way to the rest of it."""
        if count >= len(self.runs):
            return self
        return RunPage(runs=self.runs[:count], next=self.runs[count - 1].run)


class ProcessLine(Frozen):
    name: str
    state: str
    pid: int
    host: str
    log: str


class ShownRun(Frozen):
    """Everything about how a run is."""

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
    restarts: int = Field(default=0, description="since its last new checkpoint")
    last_restart: ForeignText = ""
    is_stopping_for: str = ""
    processes: tuple[ProcessLine, ...] = ()
    step: int | None = None
    steps: int | None = None
    doing: str = Field(default="", description="what it is doing now")
    loss: float | None = None
    reward: float | None = None
    pass_rates: Annotated[dict[str, float], MIXED] = Field(default_factory=dict)
    validation_reward: float | None = None
    validation_pass_rates: Annotated[dict[str, float], MIXED] = Field(default_factory=dict)
    seconds_left: float | None = None
    estimate_basis: str = ""
    links: Annotated[dict[str, str], MIXED] = Field(default_factory=dict)
    warning: ForeignText = ""
    proof: str = Field(default="", description="the run that proves this training")
    progress: Annotated[dict[str, Any] | None, MIXED] = None
    next_check_seconds: float = 5.0
    is_repeated: bool = Field(default=False, description="the last answer: you asked too soon")

    def short(self) -> ShownRun:
        """Without what is told in other fields, or by the run's results."""
        doing = {name: (self.progress or {}).get(name) for name in ("doing", "seconds_left")}
        dull = {name: value for name, value in doing.items() if value}
        return self.model_copy(update={"progress": dull, "folder": ""})


class Status(Frozen):
    """As much as it takes to follow a run."""

    run: str
    kind: str
    state: RunState
    message: ForeignText = ""
    exit_code: int = 0
    error: str = ""
    last_restart: ForeignText = ""
    progress: Annotated[dict[str, Any] | None, MIXED] = None
    doing: str = Field(default="", description="what its first process does right now")


class ResultsQuery(RunQuery):
    rows: int = Field(default=10, ge=0, le=1000, description="rows of the history to show")


class Results(Frozen):
    run: str
    kind: str
    state: RunState
    message: ForeignText = ""
    summary: Annotated[dict[str, Any], SUMMARY]
    final: MixedTable = Field(default_factory=dict, description="the last row of metrics")
    history: Annotated[tuple[dict[str, Any], ...], MIXED] = ()
    best_checkpoint: str | None = None
    last_checkpoint: str | None = None

    def short(self) -> Results:
        """The figures that say whether it learned, and few rows of them."""
        kept = {
            name: value
            for name, value in self.summary.items()
            if name not in _TOLD_ELSEWHERE and (name != "cases" or isinstance(value, int))
        }
        if isinstance(told := kept.get("validation"), list):
            kept["validation"] = [_telling(row) for row in (told[:1] + told[1:][-1:])]
        update = {
            "summary": kept,
            "final": _telling(self.final),
            "history": tuple(_telling(row, briefly=True) for row in self.history),
        }
        return self.model_copy(update=update)


class WaitFor(RunQuery):
    since: int | None = Field(
        default=0,
        ge=0,
        lt=2**62,
        description="`cursor` of an earlier answer, for what came after; null: now",
    )
    timeout: float = Field(default=45.0, ge=0, le=45, description="seconds, at most")
    until: Literal["news", "end"] = Field(
        default="news", description="news: a state, a warning, a checkpoint; end: only its end"
    )


class News(Frozen):
    run: str
    state: RunState
    has_ended: bool
    exit_code: int = Field(
        default=NotFinished.exit_code, description="0 done, 100 failed, 103 stopped"
    )
    step: int | None = Field(default=None, description="of a training; else rollouts played")
    steps: int | None = None
    reward: float | None = None
    message: ForeignText
    news: Annotated[tuple[dict[str, Any], ...], MIXED]
    cursor: int = Field(description="pass as `since`, to hear only what comes after")

    def short(self) -> News:
        """What happened, without who wrote it down."""
        dull = ("epoch", "runs_at_once", "attempt", "time", "tokens", "dtype")
        news = tuple(
            {name: value for name, value in each.items() if name not in dull} for each in self.news
        )
        return self.model_copy(update={"news": news})


class LogQuery(RunQuery):
    process: str = Field(default="", description="by name, from show_run; default: the first")
    attempt: int | None = Field(default=None, ge=1, description="default: the last")
    lines: int = Field(default=40, ge=1, le=10_000, description="the last so many")


class Log(Frozen):
    run: str
    process: str
    attempt: int
    path: str
    there_are: tuple[str, ...]
    text: ForeignText


class Reindexed(Frozen):
    runs: int


_TOLD_ELSEWHERE = frozenset(
    {"run", "kind", "last", "cases_digest", "best_checkpoint", "last_checkpoint"}
)
_TELLING = ("step", "reward", "validation/reward", "pass_rate/", "validation/pass_rate/")
_ALSO_TELLING = ("loss", "live_groups", "truncated", "unscored", "call_rate", "kl", "seconds")


def _telling(row: Mapping[str, Any], *, briefly: bool = False) -> dict[str, Any]:
    """Of a row of metrics, what one looks at first."""
    wanted = _TELLING if briefly else (*_TELLING, *_ALSO_TELLING)
    return {
        name: value
        for name, value in row.items()
        if name in wanted or name.startswith(("pass_rate/", "validation/pass_rate/"))
    }
