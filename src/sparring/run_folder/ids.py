"""Ids of runs, made of a name, a UTC time and a random token."""

from __future__ import annotations

import re
import time


def new_run_id(name: str, now: float, token: str) -> str:
    """Return an id such as `calculator-20261115-093012-1f2e`."""
    return f"{slug(name)}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{token}"


def slug(name: str) -> str:
    """Return a name as run ids contain it: lower case, hyphens, at most 40 characters."""
    return hyphenated(name)[:40] or "run"


def hyphenated(name: str) -> str:
    """Return a name, or the beginning of an id, in lower case and with hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def is_id(name: str) -> bool:
    """Whether a name has the form of a whole id."""
    return re.fullmatch(r".+-\d{8}-\d{6}-[0-9a-f]+", name) is not None


def is_plain_name(name: str) -> bool:
    """Whether a name is safe as one part of a path: no separator, leading dot or glob pattern."""
    return re.fullmatch(r"[A-Za-z0-9][\w.\-]{0,199}", name) is not None


def is_run_of(run: str, name: str) -> bool:
    """Whether `run` has the form of an id that `new_run_id` makes from `name`."""
    return re.fullmatch(re.escape(slug(name)) + r"-\d{8}-\d{6}-[0-9a-f]+", run) is not None


def short_id(run: str) -> str:
    """Return the token of an id, by which the run can also be found. The prefix `proof-` or `ship-`
    is kept."""
    match = re.fullmatch(r"(proof-|ship-)?.*-\d{8}-\d{6}-([0-9a-f]{4,})", run)
    return f"{match[1] or ''}{match[2]}" if match else run
