"""What a report says of a training: what it was, its curves, its settings, how to do it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.progress import in_words
from sparring.contracts.training import TrainSettings
from sparring.proofs.document import Block, Folded, Grid, Heading
from sparring.proofs.pictures import Curve, curves

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TrainingTold:
    """A training, as its folder tells of it."""

    run: str
    spec: Row
    summary: Row
    history: Sequence[Row]
    manifest: Row


def training_blocks(told: TrainingTold) -> list[Block | None]:
    summary, spec = told.summary, told.spec
    seconds = summary.get("seconds")
    about = [
        ("run", told.run),
        ("environment", str(spec.get("environment") or spec.get("target"))),
        ("model", str(summary.get("model") or (spec.get("policy") or {}).get("model") or "")),
        ("plan", str(summary.get("plan", ""))),
        ("time", in_words(seconds) if seconds else "–"),
        ("weights", str(summary.get("best_checkpoint") or summary.get("last_checkpoint") or "–")),
    ]
    return [
        Heading("What was trained"),
        Grid(("", ""), about),
        curves(panels_of(told.history)),
        Folded("Settings, with their sources and locks", [_settings(spec)]),
        Folded("To do it again: versions and digests", [_versions(told)]),
    ]


def panels_of(history: Sequence[Row]) -> dict[str, list[Curve]]:
    """Reward, pass rates, live groups, length, entropy, and the loss on what tools answer."""

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
        "pass rate": [curve(key, key.removeprefix("pass_rate/")) for key in rates],
        "live groups": [curve("live_groups", "live groups")],
        "tokens in a rollout": [curve("completion_tokens", "tokens in a rollout")],
        "entropy": [curve("entropy", "entropy")],
        "loss on what tools answer": [curve("env_loss", "loss on what tools answer")],
    }


def _settings(spec: Row) -> Grid:
    sources, locks = spec.get("sources") or {}, spec.get("locks") or {}
    usual = flat(TrainSettings().model_dump(mode="json"))
    rows = []
    values = {**(spec.get("settings") or {}), "config": spec.get("config") or {}}
    for name, value in flat(values).items():
        is_usual = name not in usual or usual[name] == value
        source = sources.get(name, "default" if is_usual else "Python")
        rows.append((name, shortened(value), source, locks.get(name, "")))
    return Grid(("setting", "value", "from", "locked by"), rows)


def _versions(told: TrainingTold) -> Grid:
    rows = [("sparring run", told.run), ("code", str(told.spec.get("code_digest", "")))]
    for name, digest in (told.manifest.get("digests") or {}).items():
        rows.append((name, str(digest)))
    for name, version in (told.manifest.get("versions") or {}).items():
        rows.append((name, str(version)))
    return Grid(("", ""), rows)


def flat(table: Row, prefix: str = "") -> dict[str, Any]:
    """A table of settings by dotted names."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def shortened(value: Any, longest: int = 200) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"
