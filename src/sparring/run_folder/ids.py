"""Ids of runs: readable, sortable by time, unique."""

from __future__ import annotations

import re
import time


def new_run_id(name: str, now: float, token: str) -> str:
    """Return an id such as `calculator-20261115-093012-1f2e`."""
    return f"{slug(name)}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{token}"


def slug(name: str) -> str:
    """Return a name in the form in which run ids begin with it."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"


def is_plain_name(name: str) -> bool:
    """Whether a name is one safe part of a path: no separator, no leading dot, no pattern."""
    return re.fullmatch(r"[A-Za-z0-9][\w.\-]{0,199}", name) is not None


def is_run_of(run: str, name: str) -> bool:
    """Whether `new_run_id` made this id from this name."""
    return re.fullmatch(re.escape(slug(name)) + r"-\d{8}-\d{6}-[0-9a-f]+", run) is not None


def short_id(run: str) -> str:
    """Return the token of an id, which also finds the run; a proof keeps its `proof-` prefix, and a
    shipment its `ship-`."""
    match = re.fullmatch(r"(proof-|ship-)?.*-\d{8}-\d{6}-([0-9a-f]{4,})", run)
    return f"{match[1] or ''}{match[2]}" if match else run
