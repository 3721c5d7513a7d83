"""Builds the training section of a report: summary, curves, settings, versions and digests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.progress import duration_text
from sparring.contracts.specs import is_python_target
from sparring.contracts.summaries import TrainSummary
from sparring.contracts.training import TrainSettings
from sparring.reports.document import (
    Block,
    Folded,
    Grid,
    Heading,
    unsandboxed_note,
)
from sparring.reports.pictures import Curve, curves

Row = Mapping[str, Any]
PASS_RATE = "pass rate"  # the panel with a curve for each measure


@dataclass(frozen=True, slots=True)
class TrainingFacts:
    """A training run's id, and the contents of its files that the report uses."""

    run: str
    spec: Row
    summary: TrainSummary | None
    history: Sequence[Row]
    manifest: Row


def training_blocks(facts: TrainingFacts) -> list[Block | None]:
    """Return the blocks that describe a training run."""
    summary, spec = facts.summary, facts.spec
    model, weights = (spec.get("policy") or {}).get("model"), None
    if summary is not None:
        model = summary.model or model
        weights = summary.best_checkpoint or summary.last_checkpoint
    about = [
        ("run", facts.run),
        ("environment", str(spec.get("environment") or spec.get("target"))),
        ("model", str(model or "")),
        ("plan", summary.plan if summary else ""),
        ("time", duration_text(summary.seconds) if summary and summary.seconds else "–"),
        ("weights", weights or "–"),
    ]
    return [
        Heading("What was trained"),
        Grid(("", ""), about),
        unsandboxed_note(summary is not None and summary.unsandboxed),
        curves(panels_of(facts.history)),
        Folded("Settings, with their sources and locks", [_settings(spec)]),
        Folded("To reproduce it: versions and digests", [_versions(facts)]),
    ]


def panels_of(history: Sequence[Row]) -> dict[str, list[Curve]]:
    """Return curves by panel title: reward, pass rate, live groups, tokens, entropy, ECHO loss."""

    def curve(key: str, name: str) -> Curve:
        rows = [row for row in history if row.get(key) is not None]
        return Curve(
            name,
            [row["step"] for row in rows],
            [row[key] for row in rows],
        )

    rates = sorted({key for row in history for key in row if key.startswith("pass_rate/")})
    return {
        "reward": [curve("reward", "training"), curve("validation/reward", "validation")],
        PASS_RATE: [curve(key, key.removeprefix("pass_rate/")) for key in rates],
        "live groups": [curve("live_groups", "live groups")],
        "tokens per rollout": [curve("completion_tokens", "tokens per rollout")],
        "entropy": [curve("entropy", "entropy")],
        "loss on tool results": [curve("env_loss", "loss on tool results")],
    }


def _settings(spec: Row) -> Grid:
    sources, locks = spec.get("sources") or {}, spec.get("locks") or {}
    defaults = flat(TrainSettings().model_dump(mode="json"))
    is_from_python = is_python_target(str(spec.get("target", "")))
    rows = []
    values = {**(spec.get("settings") or {}), "config": spec.get("config") or {}}
    for name, value in flat(values).items():
        is_default = defaults[name] == value if name in defaults else not is_from_python
        source = sources.get(name, "default" if is_default else "Python")
        rows.append((name, shortened(value), source, locks.get(name, "")))
    return Grid(("setting", "value", "from", "locked by"), rows)


def _versions(facts: TrainingFacts) -> Grid:
    rows = [("run", facts.run), ("code", str(facts.spec.get("code_digest", "")))]
    for name, digest in (facts.manifest.get("digests") or {}).items():
        rows.append((name, str(digest)))
    for name, version in (facts.manifest.get("versions") or {}).items():
        rows.append((name, str(version)))
    return Grid(("", ""), rows)


def flat(table: Row, prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings into a dictionary with dotted names."""
    values: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping) and value:
            values |= flat(value, f"{prefix}{name}.")
        else:
            values[f"{prefix}{name}"] = value
    return values


def shortened(value: Any, longest: int = 200) -> str:
    """Return the value as text, cut to `longest` characters."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"
