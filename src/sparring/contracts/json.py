"""JSON that files, requests and other programs hold: names for it, and values as JSON.

Their keys are not known here: they depend on a measure, a kind of run, a launcher, or a user.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from pydantic import BaseModel

JsonObject = dict[str, Any]
JsonSchema = Mapping[str, Any]
Beat = Mapping[str, Any]  # a process's heartbeat
Event = Mapping[str, Any]  # a line of a run's events; `event` names its kind
MetricsRow = dict[str, Any]  # the figures of one step by name
SummaryJson = dict[str, Any]  # a run's result, as its kind writes it


def plain(value: Any) -> Any:
    """Return JSON values that every parser accepts: no infinities, no lone surrogates."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="json"))
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {_text(str(name)): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)[:80]
    return _text(str(value))


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode("utf-8")
