"""Names for JSON that files, requests and other programs hold.

Their keys are not known here: they depend on a measure, a kind of run, a launcher, or a user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JsonObject = dict[str, Any]
JsonSchema = Mapping[str, Any]
Beat = Mapping[str, Any]  # a process's heartbeat
Event = Mapping[str, Any]  # a line of a run's events; `event` names its kind
MetricsRow = dict[str, Any]  # the figures of one step by name
SummaryJson = dict[str, Any]  # a run's result, as its kind writes it
