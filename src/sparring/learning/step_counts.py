"""Counts the results of a step's rollouts as sums that can be merged over ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from sparring.contracts.rollouts import Ending, Rollout

MAX_UNSCORED = 0.1  # of the rollouts of a validation
_BY_CAUSE = ("dead/", "replaced/", "failed_replacements/")


@dataclass(slots=True)
class StepCounts:
    """Sums, minima and maxima by name. Its size does not depend on the number of rollouts."""

    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    lows: dict[str, float] = field(default_factory=dict)
    highs: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, rollouts: Iterable[Rollout]) -> StepCounts:
        """Return the counts of these rollouts."""
        counts = cls()
        for rollout in rollouts:
            counts._add(rollout)
        return counts

    def plus(self, **sums: float) -> StepCounts:
        """Add these sums in place, and return self."""
        for name, value in sums.items():
            self.sums[name] += value
        return self

    @classmethod
    def merged(cls, parts: Iterable[StepCounts]) -> StepCounts:
        """Return the sums, minima and maxima over all parts."""
        total = cls()
        for part in parts:
            for name, value in part.sums.items():
                total.sums[name] += value
            for name, value in part.lows.items():
                total.lows[name] = min(value, total.lows.get(name, value))
            for name, value in part.highs.items():
                total.highs[name] = max(value, total.highs.get(name, value))
        return total

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return plain dictionaries, which ranks can exchange."""
        return {"sums": dict(self.sums), "lows": self.lows, "highs": self.highs}

    @classmethod
    def from_dict(cls, value: dict[str, dict[str, float]]) -> StepCounts:
        """Return counts from the output of `to_dict`."""
        return cls(defaultdict(float, value["sums"]), dict(value["lows"]), dict(value["highs"]))

    def metrics(self) -> dict[str, float]:
        """Return rates and means under their names in metrics.jsonl; empty without rollouts."""
        if not self.sums["rollouts"]:
            return {}
        return {name: value for name, value in self._figures().items() if value is not None}

    def score(self) -> float | None:
        """Return the mean reward, by which checkpoints are compared; None if more than a tenth of
        the rollouts could not be scored."""
        rollouts, scored = self.sums["rollouts"], self.sums["scored"]
        is_known = scored and (rollouts - scored) / rollouts <= MAX_UNSCORED
        return self.sums["reward"] / scored if is_known else None

    def _figures(self) -> dict[str, float | None]:
        rollouts = self.sums["rollouts"]
        scored, sampled = self.sums["scored"], self.sums["sampled_tokens"]
        seconds = self.sums["play_seconds"]
        return {
            **self._spread("reward", scored),
            **self._spread("advantage", self.sums["with_advantage"]),
            **self._pass_rates(),
            **self._env_losses(),
            **self._group_figures(),
            **self._pace_figures(),
            "rollouts": int(rollouts),
            "unscored": (rollouts - scored) / rollouts,
            "truncated": self.sums["truncated"] / rollouts,
            "parse_rate": self.sums["parsed"] / rollouts,
            "call_rate": self._call_rate(),
            "tool_failures": self._share("failed_calls", self.sums["calls"]),
            "completion_tokens": sampled / rollouts,
            "sampled_tokens": int(sampled),
            "discarded_rows": self.sums["discarded_rows"] or None,
            "tokens_per_second": sampled / seconds if seconds else None,
        }

    def _call_rate(self) -> float | None:
        """Return the share of rollouts that call a tool; None if no rollout was offered tools."""
        has_tools = self.sums["with_tools"] or self.sums["with_a_call"]
        return self._share("with_a_call", self.sums["rollouts"]) if has_tools else None

    def _spread(self, name: str, count: float) -> dict[str, float | None]:
        return {
            name: self._share(name, count),
            f"{name}_min": self.lows.get(name),
            f"{name}_max": self.highs.get(name),
        }

    def _pass_rates(self) -> dict[str, float | None]:
        names = [name.removeprefix("judged/") for name in self.sums if name.startswith("judged/")]
        return {
            f"pass_rate/{name}": self._share(f"correct/{name}", self.sums[f"judged/{name}"])
            for name in sorted(names)
        }

    def _env_losses(self) -> dict[str, float | None]:
        """Return the cross-entropy per token of tool results, overall and by tool."""
        prefix = "env_tokens/"
        tools = sorted(name.removeprefix(prefix) for name in self.sums if name.startswith(prefix))
        if not tools:
            return {}
        losses = {tool: self.sums[f"env_loss/{tool}"] for tool in tools}
        tokens = {tool: self.sums[f"env_tokens/{tool}"] for tool in tools}
        return {
            "env_loss": sum(losses.values()) / sum(tokens.values()),
            **{f"env_loss/{tool}": losses[tool] / tokens[tool] for tool in tools},
        }

    def _group_figures(self) -> dict[str, float | None]:
        """Return shares of live groups, and numbers of dead and replaced groups by cause."""
        if not self.sums["groups"]:
            return {}
        causes = {name: self.sums[name] for name in sorted(self.sums) if name.startswith(_BY_CAUSE)}
        replaced = sum(value for name, value in causes.items() if name.startswith("replaced/"))
        return {
            "groups": self.sums["groups"],
            "live_groups": self._share("live_groups", self.sums["groups"]),
            "teaching_groups": self._share("teaching_groups", self.sums["groups"]),
            **causes,
            "replaced_groups": replaced,
            "skipped": self.sums["skipped"],
        }

    def _pace_figures(self) -> dict[str, float | None]:
        """Return staleness, idle times and the parity gap; empty without sampling servers."""
        if not (paced := self.sums["paced"]):
            return {}
        return {
            "staleness": self.sums["staleness"] / paced,
            "trainer_idle_seconds": self.sums["trainer_idle"] / paced,
            "sampler_idle_seconds": self.sums["samplers_idle"] / paced,
            "parity_gap": self.highs.get("parity_gap"),
        }

    def _share(self, name: str, count: float) -> float | None:
        return self.sums[name] / count if count else None

    def _add(self, rollout: Rollout) -> None:
        calls = rollout.tool_calls
        for name, value in (
            ("rollouts", 1),
            ("scored", rollout.reward is not None),
            ("truncated", rollout.is_truncated),
            ("parsed", rollout.ending is not Ending.UNPARSABLE_CALL),
            ("with_a_call", bool(calls)),
            ("calls", len(calls)),
            ("failed_calls", sum(call.failure is not None for call in calls)),
            ("sampled_tokens", rollout.tokens.sampled),
            ("discarded_rows", sum(row.is_discarded for row in rollout.rows)),
        ):
            self.sums[name] += value
        self._add_value("reward", rollout.reward)
        if rollout.advantage is not None:
            self.sums["with_advantage"] += 1
        self._add_value("advantage", rollout.advantage)
        for judgement in rollout.judgements:
            if (correct := judgement.is_correct) is not None:
                self.sums[f"judged/{judgement.measure}"] += 1
                self.sums[f"correct/{judgement.measure}"] += correct

    def _add_value(self, name: str, value: float | None) -> None:
        if value is None:
            return
        self.sums[name] += value
        self.lows[name] = min(value, self.lows.get(name, value))
        self.highs[name] = max(value, self.highs.get(name, value))
