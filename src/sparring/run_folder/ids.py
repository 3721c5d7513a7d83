"""Names of runs: readable, sortable by time, unique."""

from __future__ import annotations

import re
import time


def new_run_id(name: str, now: float, token: str) -> str:
    """`calculator-20261115-093012-1f2e`; the clock and the token are passed in."""
    return f"{slug(name)}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{token}"


def slug(name: str) -> str:
    """A name as it stands at the beginning of a run's id."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"


def is_plain_name(name: str) -> bool:
    """Whether a name is one part of a path and nothing else: no way out, no pattern."""
    return re.fullmatch(r"[A-Za-z0-9][\w.\-]{0,199}", name) is not None


def is_run_of(run: str, name: str) -> bool:
    """Whether a run's id was made from this name by `new_run_id`."""
    return re.fullmatch(re.escape(slug(name)) + r"-\d{8}-\d{6}-[0-9a-f]+", run) is not None


def short_id(run: str) -> str:
    """The last letters of an id, by which a run is found as well; of a proof, with what it is."""
    made = re.fullmatch(r"(proof-)?.*-\d{8}-\d{6}-([0-9a-f]{4,})", run)
    return f"{made[1] or ''}{made[2]}" if made else run
