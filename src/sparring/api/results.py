"""The results of the Python entry points. `TrainResult` has a module of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from sparring.api.notebook import Rows, as_html
from sparring.contracts.errors import InvalidInput
from sparring.contracts.progress import duration_text
from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import (
    AdvisedFinding,
    AuditSummary,
    CheckSummary,
    CheckVerdict,
    Difference,
    EvalSummary,
    PlanEstimate,
    Proof,
    ProveSummary,
    ShipSummary,
    Standing,
    Summary,
)
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_lines
from sparring.run_folder.held_out_ledger import record_look
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import RolloutLog

Kind = TypeVar("Kind", bound=Summary)
_MOST_CHARACTERS = 400  # of a result at the prompt


@dataclass(frozen=True, repr=False)
class Result(Generic[Kind]):
    """The result of a run. `summary` has the fields that the command prints with `--json`."""

    folder: RunFolder
    summary: Kind

    @property
    def run(self) -> str:
        """The id of the run."""
        return self.folder.id

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        raise NotImplementedError

    def rows(self) -> Rows:
        """Return the figures of the result, each with its name, as `print` shows them."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join([self.headline, *(f"  {name}: {value}" for name, value in self.rows())])

    def __repr__(self) -> str:
        text = str(self)
        return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 2]} …"

    def _repr_html_(self) -> str:
        return as_html(self.headline, self.rows())


class EvalResult(Result[EvalSummary]):
    """The result of an evaluation."""

    @property
    def pass_rates(self) -> dict[str, float | None]:
        """The share of judged rollouts that passed, by measure; None if none was judged."""
        rates = {name: each.pass_rate for name, each in self.summary.measures.items()}
        return {name: rate.value if rate else None for name, rate in rates.items()}

    @property
    def reward(self) -> float | None:
        """The mean reward; None if no rollout could be scored."""
        return self.summary.reward

    @property
    def headline(self) -> str:
        """The run and the number of its rollouts."""
        return f"{self.run}: {self.summary.rollouts} rollouts"

    def rows(self) -> Rows:
        """Return the pass rate of each measure, with its interval."""
        rates = {name: each.pass_rate for name, each in self.summary.measures.items()}
        return [
            (name, f"{rate.value:.1%} ({rate.low:.1%} … {rate.high:.1%})" if rate else "–")
            for name, rate in rates.items()
        ]

    def rollouts(self) -> Iterator[Rollout]:
        """Yield every rollout, read from disk one at a time."""
        for record in RolloutLog(self.folder.rollouts()).records():
            yield from_record(record)

    def compare(self, before: EvalResult, *, picked_from: int = 1) -> Proof:
        """Test whether this evaluation is better than `before` on the cases that both have played.

        The interval is paired by case, and corrected for the number of candidates that were
        measured on these cases in the same runs folder, including this one. If there were more
        candidates, pass their number as `picked_from`.
        """
        from sparring.proofs.proof import PlayedSides, prove  # imports scipy

        if not isinstance(before, EvalResult):
            raise InvalidInput(
                f"compare() takes another evaluation, not {type(before).__name__}; for a training, "
                "call sparring.prove(result)"
            )
        played = PlayedSides(list(before.rollouts()), list(self.rollouts()))
        events = read_lines(self.folder.events)
        digests = [event["looked_at"] for event in events if "looked_at" in event]
        candidates = record_look(self.folder, digests[-1], self.run) if digests else 1
        return prove(played, chances=max(picked_from, candidates))


class CheckResult(Result[CheckSummary]):
    """The result of a check: whether training can improve the model, and what it would cost."""

    @property
    def verdict(self) -> CheckVerdict:
        """`learnable`, `not as it is`, `too easy`, `too hard`, `constant` or `broken`."""
        return self.summary.verdict

    @property
    def why(self) -> str:
        """The reason for the verdict, with the next step."""
        return self.summary.why

    @property
    def estimate(self) -> PlanEstimate | None:
        """The estimated cost of the planned training; None if no step was measured."""
        return self.summary.estimate

    @property
    def headline(self) -> str:
        """The verdict and its reason."""
        return f"{self.verdict}: {self.why}"

    def rows(self) -> Rows:
        """Return what each measure allows, and the estimated time of training and proof."""
        rows = [
            (each.name, f"{each.movement}; {each.passed} of {each.scored} rollouts passed")
            for each in self.summary.measures
        ]
        if (cost := self.estimate) is not None:
            times = (("training", cost.hours.value), ("proof", cost.proof_hours))
            rows += [(name, f"about {duration_text(hours * 3600)}") for name, hours in times]
        return rows


class AuditResult(Result[AuditSummary]):
    """The result of an audit of measures."""

    @property
    def verdict(self) -> str:
        """`nothing found`, `doubtful` or `faulty`: no finding, none that is serious, or a serious
        one."""
        if not self.findings:
            return "nothing found"
        return "doubtful" if self.summary.has_passed else "faulty"

    @property
    def why(self) -> str:
        """What was found, each finding with its advice."""
        return "; ".join(f"{name} {text}" for name, text in self.rows())

    @property
    def findings(self) -> Sequence[AdvisedFinding]:
        """The faults of measures, each with a rollout that shows it."""
        return self.summary.audit

    @property
    def headline(self) -> str:
        """The verdict, and how much was judged."""
        return f"{self.verdict}: {self.summary.judgements} judgements of {self.summary.cases} cases"

    def rows(self) -> Rows:
        """Return the findings by measure."""
        return [(each.measure, f"{each.message} → {each.advice}") for each in self.findings]


class ProofResult(Result[ProveSummary]):
    """The result of a proof: base and trained model on the same held-out cases."""

    @property
    def verdict(self) -> Standing:
        """`better`, `worse` or `not shown`."""
        return self.summary.verdict

    @property
    def why(self) -> str:
        """The evidence in one sentence."""
        return self.summary.sentence

    @property
    def reward(self) -> Difference | None:
        """The difference of the mean reward, with its interval."""
        return self.summary.reward

    @property
    def headline(self) -> str:
        """The verdict and its evidence."""
        return f"{self.verdict}: {self.why}"

    def rows(self) -> Rows:
        """Return reward and measures before and after, each with the interval of the change."""
        return [
            (name, f"{row.before:.3f} → {row.after:.3f} ({row.low:+.3f} … {row.high:+.3f})")
            for name, row in self.summary.differences.items()
        ]


class ShipResult(Result[ShipSummary]):
    """The result of a shipment."""

    @property
    def verdict(self) -> str:
        """`shipped`, `not as good` or `refused`."""
        return self.summary.verdict

    @property
    def why(self) -> str:
        """What was written, and how the model plays."""
        return f"{self.summary.sentence}. {self.summary.comparison}"

    @property
    def path(self) -> Path:
        """The folder that was written."""
        return Path(self.summary.to)

    @property
    def headline(self) -> str:
        """The verdict and its evidence."""
        return f"{self.verdict}: {self.why}"

    def rows(self) -> Rows:
        """Return the folder, and the form and size of each artefact."""
        files = self.summary.artefacts
        sizes = [(each.name, f"{each.form}, {each.size / 1e6:,.0f} MB") for each in files]
        return [("folder", self.summary.to or "none"), *sizes]
