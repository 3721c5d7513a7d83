"""Summaries: the results of runs, one model for each kind, and the results that they consist of.

A summary is `report/summary.json` of a run's folder, and what `--json` prints. Its JSON has only
the fields that were set.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic import ConfigDict, Field

from sparring.contracts.json import JsonObject, MetricsRow
from sparring.contracts.rollouts import TokenUse
from sparring.contracts.specs import FORMAT, Frozen

Number = int | float
_MIN_DIFFERING = 6  # five flips in one direction have probability 1/16 by luck


class SummaryPart(Frozen):
    """Base of summaries and their larger parts."""

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


@dataclass(frozen=True, slots=True)
class Share:
    """A share of cases with its 95 % interval. `count` is the number of cases."""

    value: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Reason:
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
    pass_rate: Share | None
    mean_score: Number | None
    reasons_for_failing: tuple[Reason, ...]


class Figures(SummaryPart):
    """The figures of all rollouts that were played."""

    format: int = FORMAT
    rollouts: int
    unscored: int
    reward: Number | None
    measures: dict[str, MeasureFigures]
    endings: dict[str, int]
    causes: tuple[Reason, ...]
    parse_rate: Number | None
    truncated: Number | None
    called_a_tool: Number | None
    tool_calls: dict[str, int]
    tool_failures: dict[str, int]
    turns: int
    tokens: TokenUse


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


# ---------------------------------------------------------------------- proofs


class Standing(StrEnum):
    """The verdict that an interval gives on a difference."""

    BETTER = "better"
    NOT_SHOWN = "not shown"
    WORSE = "worse"


@dataclass(frozen=True, slots=True)
class Difference:
    """After minus before, over the cases that both sides have.

    `differing` counts the cases whose result changed. `smallest_effect` is the effect that these
    cases detect with 80 % power. `mcnemar` is the exact p-value if each case has one pass/fail
    rollout. `chances` is the number of comparisons that the error rate is divided by.
    """

    before: float
    after: float
    value: float
    low: float
    high: float
    cases: int
    differing: int
    smallest_effect: float
    chances: int = 1
    mcnemar: float | None = None

    @property
    def standing(self) -> Standing:
        """Better or worse if the interval excludes zero and at least six cases differ."""
        if self.differing < _MIN_DIFFERING:
            return Standing.NOT_SHOWN
        if self.low > 0:
            return Standing.BETTER
        return Standing.WORSE if self.high < 0 else Standing.NOT_SHOWN


@dataclass(frozen=True, slots=True)
class MeasureChange(Difference):
    """One measure before and after training. A guard carries no reward."""

    is_guard: bool = False


@dataclass(frozen=True, slots=True)
class Flip:
    """A case whose mean reward changed, with the id of one example rollout of each model."""

    case: str
    before: float
    after: float
    base: str
    trained: str


@dataclass(frozen=True, slots=True)
class StillFails:
    """A frequent reason why the trained model fails a measure."""

    measure: str
    count: int
    reason: str


class Level(StrEnum):
    """How good the trained model is, by its mean reward."""

    POOR = "still poor"
    HALFWAY = "halfway there"
    GOOD = "good"
    SATURATED = "saturated"

    @classmethod
    def of(cls, share: float) -> Level:
        """Return the level of a mean reward or pass rate."""
        limits = ((0.5, cls.POOR), (0.8, cls.HALFWAY), (0.98, cls.GOOD))
        return next((level for limit, level in limits if share < limit), cls.SATURATED)


class Proof(SummaryPart):
    """The verdict on base and trained model, with its evidence.

    `is_good` tells whether the verdict is better, the level good or saturated, and no measure
    unmoved. `unmoved` names rewarded measures that got worse, and those below the level good that
    show no change. `also` is the difference on the second suite. `regressed` names the guards that
    got worse, and the second suite if its reward did; if there are any, the verdict is worse.
    `unscored` counts rollouts without a reward, of `base` and `trained`.
    """

    verdict: Standing
    sentence: str
    level: Level | None
    is_good: bool
    unmoved: tuple[str, ...]
    still_fails: tuple[StillFails, ...]
    reward: Difference | None
    measures: dict[str, MeasureChange]
    also: Difference | None
    regressed: tuple[str, ...]
    flips: tuple[Flip, ...]
    unscored: dict[str, int] | None

    def __str__(self) -> str:
        return f"{self.verdict}: {self.sentence}"


class Fault(StrEnum):
    """A kind of fault in a measure."""

    PASSED_BY_NOTHING = "passed by a null player"
    CONSTANT = "constant"
    NEVER_PASSED = "never passed"
    SATURATED = "saturated"
    DUPLICATE = "duplicate"
    FLAKY = "flaky"
    ORDER_DEPENDENT = "order-dependent"
    SLOW = "slow"
    BREAKS = "breaks"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A fault in a measure, with a rollout that shows it."""

    measure: str
    fault: Fault
    message: str
    rollout: str = ""
    is_grave: bool = True


@dataclass(frozen=True, slots=True)
class AdvisedFinding(AuditFinding):
    """A fault in a measure, with advice on how to remove it."""

    advice: str = ""


class ProvePlan(Summary):
    """What a proof has played."""

    kind: Literal["prove"] = "prove"
    training: str
    checkpoint: str
    model: str | None
    split: str
    cases: int
    rollouts_per_case: int
    temperature: Number


class ProveSummary(Proof, ProvePlan):
    """The summary of a proof."""

    also_environment: str
    picked_from: int
    cases_digest: str
    proofs_on_these_cases: int
    unsandboxed: bool = False
    audit: tuple[AuditFinding, ...] | None
    left_out: tuple[str, ...] = ()
    seconds: Number

    @property
    def has_passed(self) -> bool:
        """Whether the trained model is better."""
        return self.verdict is Standing.BETTER

    @property
    def differences(self) -> dict[str, Difference]:
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
    audit: tuple[AdvisedFinding, ...]
    left_out: tuple[str, ...] = ()
    unsandboxed: bool = False
    seconds: Number

    @property
    def has_passed(self) -> bool:
        """Whether no finding is serious."""
        return not any(finding.is_grave for finding in self.audit)


# ---------------------------------------------------------------------- checks


class CheckVerdict(StrEnum):
    """Whether training can improve the model on an environment, or why not."""

    LEARNABLE = "learnable"
    NOT_AS_IT_IS = "not as it is"
    TOO_EASY = "too easy"
    TOO_HARD = "too hard"
    CONSTANT = "constant"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Note:
    """An observation, with advice and an example rollout. A grave note prevents learning."""

    what: str
    message: str
    advice: str = ""
    rollout: str = ""
    is_grave: bool = False


class Movement(StrEnum):
    """Whether training can improve a measure. The members are ordered from worst to best; a check
    names the worst first."""

    NEVER_PASSES = "never passes"
    CANNOT_TELL = "cannot tell"
    CONSTANT = "constant"
    ALREADY_PASSED = "already passed"
    CAN_BE_LEARNED = "can be learned"


@dataclass(frozen=True, slots=True)
class MeasureVerdict:
    """The verdict on one measure, from the rollouts that it scored.

    `live` is the expected share of groups in which its scores differ, at the planned group size;
    `why` is the most frequent reason for failing.
    """

    name: str
    movement: Movement
    scored: int
    passed: int
    live: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class LiveShare:
    """Expected share of live groups at this size, and its 95 % interval over five steps."""

    group_size: int
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CaseBand:
    """The results of one case: the number of its scored rollouts and of those that passed, the 95 %
    interval of its pass rate (Beta), and its mean reward."""

    case: str
    question: str
    rollouts: int
    passed: int
    low: float
    high: float
    reward: float | None


@dataclass(frozen=True, slots=True)
class PlayedModel:
    """The results of one model: the learner, or another model behind an endpoint."""

    name: str
    log: str
    cases: int
    rollouts: int
    unscored: int
    correct: int
    accuracy: float | None
    any_correct: float | None
    reward: float | None
    seconds: float
    is_learner: bool = False
    message: str = ""


@dataclass(frozen=True, slots=True)
class Amount:
    """An estimate with its interval."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Amount:
        """Return the amount with its value and both ends of its interval scaled."""
        return Amount(self.value * factor, self.low * factor, self.high * factor)


class CostEstimate(SummaryPart):
    """The estimated cost of the planned training.

    `cores_had` is the number of cores that the measured process used on average. `hours_alone` is
    the wall time in hours on an idle machine; 0 if unknown, because the process mostly waited for
    other processes, tools or a GPU.
    """

    seconds_per_step: Amount
    cpu_seconds_per_step: Amount
    hours: Amount
    sampled_tokens: Amount
    cost: Amount | None = None
    cores_had: Number = 1.0
    hours_alone: Number = 0.0
    proof_hours: Number = 0.0


class PlanEstimate(CostEstimate):
    """The estimated cost, with the plan and the measurements that it is based on."""

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
    verdict: CheckVerdict
    why: str
    notes: tuple[Note, ...]
    audit: tuple[AuditFinding, ...]
    measures: tuple[MeasureVerdict, ...]
    live: tuple[LiveShare, ...]
    cases: tuple[CaseBand, ...]
    figures: Figures
    models: tuple[PlayedModel, ...]
    estimate: PlanEstimate | None
    seconds: Number
    left_out: tuple[str, ...] = ()

    @property
    def has_passed(self) -> bool:
        """Whether the environment can be learned."""
        return self.verdict is CheckVerdict.LEARNABLE


# ---------------------------------------------------------------------- shipments


@dataclass(frozen=True, slots=True)
class Gap:
    """The distance between two models at sampled tokens: the mean and largest absolute difference
    in log-probability, the mean KL divergence, and the number of positions with the same most
    probable token. `unseen` counts sampled tokens for which a server returned no probability."""

    positions: int
    mean: float
    largest: float
    kl: float
    same_best: int
    unseen: int = 0


@dataclass(frozen=True, slots=True)
class PromptCheck:
    """The number of compared conversations and tokens, and of skipped conversations. A conversation
    whose text spells a special token is skipped: training encodes that text as plain text, and
    servers encode it as the special token."""

    conversations: int
    tokens: int
    skipped: int = 0


class Likeness(StrEnum):
    """The verdict of a comparison between an artefact and its checkpoint."""

    EQUAL = "equal"
    WORSE = "worse"
    CANNOT_TELL = "cannot tell"


class Equivalence(SummaryPart):
    """The verdict with its evidence. `same_answers` counts rollouts whose answer and tool calls
    are those of the checkpoint; `parse_rate` is the share whose tool calls could be parsed.
    `missing` is a text if more than a tenth of the cases could not be scored on both sides."""

    likeness: Likeness
    sentence: str
    difference: Difference | None
    margin: Number
    rollouts: int
    same_answers: int
    parse_rate: Number
    missing: str = ""

    @property
    def is_fine(self) -> bool:
        """Whether the artefact is not worse, and enough cases could be scored."""
        return self.likeness is not Likeness.WORSE and not self.missing


class ValidationRow(Equivalence):
    """The comparison on validation cases; `seconds` is the time of play."""

    mean_reward: Number | None
    seconds: Number


class HeldOutRow(Equivalence):
    """The comparison of one file on held-out cases, also with the base model."""

    artefact: str
    looks: int
    base: Difference | None
    is_improved: bool
    against_base: str


class ExamplesRow(SummaryPart):
    """What the agent's worked examples are worth: the mean rewards of the checkpoint on the same
    validation cases, with them and without."""

    examples: int
    cases: int
    reward: Number | None
    without: Number | None

    @property
    def sentence(self) -> str:
        """The comparison in words, to follow a subject."""
        shown = "the worked example" if self.examples == 1 else f"the {self.examples} examples"
        reward, without = (
            "no score" if each is None else f"{each:.2f}" for each in (self.reward, self.without)
        )
        return f"without {shown}: {without}, with: {reward}, on {self.cases} validation cases"


class ArtefactRow(SummaryPart):
    """One file or folder that was shipped, and how it was verified. `learned` is the distance
    between checkpoint and base, `servers` the play on further servers."""

    name: str
    form: str
    size: int
    path: str
    written_seconds: Number
    prompts: PromptCheck
    server: str
    gap: Gap | None = None
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
    """The summary of a shipment. `verdict` and `sentence` tell what was written, `comparison` how
    the model plays, and `problem` what is at fault. A refused shipment and a trial have no folder
    and no commands."""

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
    comparison: str
    problem: str
    is_fine: bool
    margin: Number
    warnings: tuple[str, ...]
    artefacts: tuple[ArtefactRow, ...]
    held_out: HeldOutRow | None
    without_examples: ExamplesRow | None = None
    commands: dict[str, str]
    agent_lines: str
    uploads: tuple[str, ...]
    unsandboxed: bool = False
    seconds: Number

    @property
    def has_passed(self) -> bool:
        """Whether the shipment is fine."""
        return self.is_fine


# ---------------------------------------------------------------------- trainings


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
