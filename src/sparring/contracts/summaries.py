"""Summaries: the results of runs, one model for each kind.

A summary is `report/summary.json` of a run's folder, and what `--json` prints. A row is a part of a
summary. Its JSON has only the fields that were set.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from sparring.contracts.json import JsonObject, MetricsRow
from sparring.contracts.specs import FORMAT, Frozen

Number = int | float


class SummaryPart(Frozen):
    """Base of summaries and their rows."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    def as_json(self) -> JsonObject:
        """Return the fields that were set as JSON values."""
        return self.model_dump(mode="json", exclude_unset=True)


class Summary(SummaryPart):
    """The fields that the summaries of all kinds of run share."""

    format: int = FORMAT
    kind: str
    run: str
    environment: str = ""

    @property
    def has_passed(self) -> bool:
        """Whether the result is what its command asks for; otherwise the command exits with 110."""
        return True


class RateRow(SummaryPart):
    """A share with its 95 % interval; `count` is the number of rollouts."""

    value: Number
    low: Number
    high: Number
    count: int


class ReasonRow(SummaryPart):
    """How often a reason was given; `shape` is the text without what varies."""

    count: int
    reason: str
    shape: str = ""


class MeasureFigures(SummaryPart):
    """The verdicts of one measure."""

    weight: Number
    judged: int
    cannot_tell: int
    broken: int = 0
    pass_rate: RateRow | None
    mean_score: Number | None
    reasons_for_failing: tuple[ReasonRow, ...]


class TokensRow(SummaryPart):
    """Numbers of tokens."""

    prompt: int
    sampled: int


class Figures(SummaryPart):
    """The figures of all rollouts that were played."""

    format: int = FORMAT
    rollouts: int
    unscored: int
    reward: Number | None
    measures: dict[str, MeasureFigures]
    endings: dict[str, int]
    causes: tuple[ReasonRow, ...]
    parse_rate: Number | None
    truncated: Number | None
    called_a_tool: Number | None
    tool_calls: dict[str, int]
    tool_failures: dict[str, int]
    turns: int
    tokens: TokensRow


class EvalAbout(Summary):
    """What an evaluation has played."""

    kind: Literal["eval"] = "eval"
    policy: str
    split: str
    cases: int
    rollouts_per_case: int
    temperature: Number
    seconds: Number
    hung_tools: tuple[str, ...]
    unsandboxed: bool = False


class EvalSummary(Figures, EvalAbout):
    """The summary of an evaluation."""


class DifferenceRow(SummaryPart):
    """A paired difference with its interval, corrected for `chances` candidates. `differing` counts
    the cases that came out differently."""

    before: Number
    after: Number
    value: Number
    low: Number
    high: Number
    cases: int
    differing: int
    smallest_effect: Number
    chances: int = 1
    mcnemar: Number | None = None
    is_guard: bool = False


class FlipRow(SummaryPart):
    """A case that came out differently, with a rollout of each side."""

    case: str
    before: Number
    after: Number
    base: str
    trained: str


class FailureRow(SummaryPart):
    """A reason for which the trained model still fails."""

    measure: str
    count: int
    reason: str


class FindingRow(SummaryPart):
    """A fault of a measure."""

    measure: str
    fault: str
    message: str
    rollout: str = ""
    is_grave: bool = True
    advice: str = ""


class ProveSummary(Summary):
    """The summary of a proof."""

    kind: Literal["prove"] = "prove"
    training: str
    checkpoint: str
    model: str | None
    split: str
    cases: int
    rollouts_per_case: int
    temperature: Number
    verdict: str
    sentence: str
    level: str | None
    is_good: bool
    unmoved: tuple[str, ...]
    still_fails: tuple[FailureRow, ...]
    reward: DifferenceRow | None
    measures: dict[str, DifferenceRow]
    also: DifferenceRow | None
    also_environment: str
    regressed: tuple[str, ...]
    flips: tuple[FlipRow, ...]
    unscored: dict[str, int] | None
    picked_from: int
    cases_digest: str
    proofs_on_these_cases: int
    unsandboxed: bool = False
    audit: tuple[FindingRow, ...] | None
    left_out: tuple[str, ...] = ()
    seconds: Number

    @property
    def has_passed(self) -> bool:
        """Whether the trained model is better."""
        return self.verdict == "better"

    @property
    def differences(self) -> dict[str, DifferenceRow]:
        """The differences of the reward, of each measure and of the second suite, by name."""
        rows = {"reward": self.reward, **self.measures}
        if self.also:
            rows[f"{self.also_environment} (second suite)"] = self.also
        return {name: row for name, row in rows.items() if row is not None}


class AuditSummary(Summary):
    """The summary of an audit of measures. `measures` holds their weights."""

    kind: Literal["audit"] = "audit"
    measures: dict[str, Number]
    cases: int
    judgements: int
    audit: tuple[FindingRow, ...]
    left_out: tuple[str, ...] = ()
    unsandboxed: bool = False
    seconds: Number

    @property
    def has_passed(self) -> bool:
        """Whether no finding is serious."""
        return not any(finding.is_grave for finding in self.audit)


class NoteRow(SummaryPart):
    """One thing that a check has found."""

    what: str
    message: str
    advice: str = ""
    rollout: str = ""
    is_grave: bool = False


class MovementRow(SummaryPart):
    """Whether training can move a measure; `live` is the share of groups in which it differs."""

    name: str
    movement: str
    scored: int
    passed: int
    live: Number
    why: str = ""


class LiveRow(SummaryPart):
    """The expected share of live groups of one size, with its interval."""

    group_size: int
    value: Number
    low: Number
    high: Number


class CaseRow(SummaryPart):
    """The pass rate of one case lies between `low` and `high`."""

    case: str
    question: str = ""
    rollouts: int
    passed: int
    low: Number
    high: Number
    reward: Number | None


class ModelRow(SummaryPart):
    """The figures of one model that a check played."""

    name: str
    log: str
    cases: int
    rollouts: int
    unscored: int
    correct: int
    accuracy: Number | None
    any_correct: Number | None
    reward: Number | None
    seconds: Number
    is_learner: bool = False
    message: str = ""


class AmountRow(SummaryPart):
    """An amount with its bounds."""

    value: Number
    low: Number
    high: Number


class EstimateRow(SummaryPart):
    """What the planned training will take."""

    seconds_per_step: AmountRow
    cpu_seconds_per_step: AmountRow
    hours: AmountRow
    sampled_tokens: AmountRow
    cost: AmountRow | None = None
    cores_had: Number = 1.0
    hours_alone: Number = 0.0
    proof_hours: Number = 0.0
    steps: int
    plan: str
    memory: Number
    memory_of: str
    parity: str
    basis: str


class CheckSummary(Summary):
    """The summary of a check. `set_by_command` holds the settings that the command line gave."""

    kind: Literal["check"] = "check"
    model: str
    group_size: int
    rollouts_per_case: int
    unsandboxed: bool = False
    set_by_command: JsonObject = Field(default_factory=dict)
    verdict: str
    why: str
    notes: tuple[NoteRow, ...]
    audit: tuple[FindingRow, ...]
    measures: tuple[MovementRow, ...]
    live: tuple[LiveRow, ...]
    cases: tuple[CaseRow, ...]
    figures: Figures
    models: tuple[ModelRow, ...]
    estimate: EstimateRow | None
    seconds: Number
    left_out: tuple[str, ...] = ()

    @property
    def has_passed(self) -> bool:
        """Whether the environment can be learned."""
        return self.verdict == "learnable"


class GapRow(SummaryPart):
    """The distance between a file and the checkpoint at sampled tokens."""

    positions: int
    mean: Number
    largest: Number
    kl: Number
    same_best: int
    unseen: int = 0


class PromptsRow(SummaryPart):
    """Numbers of prompts and their tokens that were compared, and of skipped prompts."""

    conversations: int
    tokens: int
    skipped: int = 0


class LikenessRow(SummaryPart):
    """The rollouts of a file compared with those of the checkpoint."""

    likeness: str
    sentence: str
    difference: DifferenceRow | None
    margin: Number
    rollouts: int
    same_answers: int
    parse_rate: Number
    missing: str = ""

    @property
    def is_fine(self) -> bool:
        """Whether the file is not worse, and enough cases could be scored."""
        return self.likeness != "worse" and not self.missing


class ValidationRow(LikenessRow):
    """The comparison on validation cases; `seconds` is the time of play."""

    mean_reward: Number | None
    seconds: Number


class HeldOutRow(LikenessRow):
    """The comparison of one file on held-out cases, also with the base model."""

    artefact: str
    looks: int
    base: DifferenceRow | None
    is_improved: bool
    against_base: str


class ArtefactRow(SummaryPart):
    """One file or folder that was shipped, and how it was verified. `learned` is the distance
    between checkpoint and base, `servers` the play on further servers."""

    name: str
    form: str
    size: int
    path: str
    written_seconds: Number
    prompts: PromptsRow
    server: str
    gap: GapRow | None = None
    learned: Number = 0.0
    warning: str = ""
    verified_seconds: Number
    validation: ValidationRow | None = None
    servers: dict[str, ValidationRow] = Field(default_factory=dict)

    @property
    def played_by(self) -> list[str]:
        """The servers that have played it."""
        return [self.server, *self.servers]


class ShipSummary(Summary):
    """The summary of a shipment. A refused shipment and a trial have no folder and no commands."""

    kind: Literal["ship"] = "ship"
    training: str
    checkpoint: str
    model: str
    name: str
    proof: str
    proof_verdict: str
    is_trial: bool
    to: str
    verdict: str
    sentence: str
    problem: str
    is_fine: bool
    margin: Number
    warnings: tuple[str, ...]
    artefacts: tuple[ArtefactRow, ...]
    held_out: HeldOutRow | None
    commands: dict[str, str]
    agent_lines: str
    uploads: tuple[str, ...]
    unsandboxed: bool = False
    seconds: Number

    @property
    def has_passed(self) -> bool:
        """Whether the shipment is fine."""
        return self.is_fine


class TrainSummary(Summary):
    """The summary of a training run. `last` and `validation` are rows of its metrics. `has_proof`,
    which is not stored, tells whether a proof follows it."""

    kind: Literal["train"] = "train"
    model: str
    warm_start: JsonObject | None = None
    steps: int
    planned_steps: int
    plan: str
    seconds: Number
    unsandboxed: bool = False
    last: MetricsRow
    validation: tuple[MetricsRow, ...]
    last_checkpoint: str | None
    best_checkpoint: str | None
    best_score: Number | None
    links: dict[str, str]
    has_proof: bool = Field(default=False, exclude=True)
