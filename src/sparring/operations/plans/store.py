"""The plan store: each plan's request and resolved content, and marks for its start or refusal.

A plan's id contains 16 digits of the digest of its resolved content, so an edit of that content is
detected. A plan starts at most one run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from sparring.contracts.errors import PlanRefused
from sparring.contracts.json import JsonObject
from sparring.contracts.specs import Frozen
from sparring.run_folder.files import read_json, write_json
from sparring.settings.layers import flatten

_IDS = re.compile(r"plan-[0-9a-f]{16}-[0-9a-f]{6}")
_MAX_PLANS = 1_000  # of each author
_MAX_LISTED = 6


class StoredPlan(Frozen):
    """One plan, as stored."""

    format: int = 1
    plan: str
    author: str
    role: str
    created: float
    revises: str = ""
    request: JsonObject
    resolved: JsonObject


class Plans:
    """The plans of one folder of runs."""

    def __init__(self, runs: Path) -> None:
        self._folder = runs / ".sparring" / "plans"

    def add(
        self,
        author: str,
        role: str,
        request: JsonObject,
        resolved: JsonObject,
        revises: str,
    ) -> StoredPlan:
        """Store a new plan under a new id. The author's oldest plans beyond 1,000 are deleted."""
        content = plain(resolved)
        name = f"plan-{digest_of(content)[:16]}-{secrets.token_hex(3)}"
        plan = StoredPlan(
            plan=name, author=author, role=role, created=time.time(), revises=revises,
            request=plain(request), resolved=content,
        )  # fmt: skip
        folder = self._folder / author
        write_json(folder / f"{name}.json", plan.model_dump(mode="json"))
        paths = sorted(folder.glob("plan-*.json"), key=_modified)
        for path in paths[: max(0, len(paths) - _MAX_PLANS)]:
            path.unlink(missing_ok=True)
        return plan

    def read(self, name: str) -> StoredPlan:
        """Read a plan. Raise PlanRefused if it is missing, unreadable or was edited."""
        paths = list(self._folder.glob(f"*/{name}.json")) if _IDS.fullmatch(name) else []
        if not paths:
            raise PlanRefused(f"there is no plan {name[:80]!r}; plan the run first, or again")
        try:
            plan = StoredPlan.model_validate(read_json(paths[0]))
        except (OSError, ValueError) as error:
            raise PlanRefused(f"plan {name} cannot be read; plan the run again") from error
        if not plan.plan.startswith(f"plan-{digest_of(plan.resolved)[:16]}-"):
            raise PlanRefused(
                f"plan {name} was changed on disk since it was made; plan the run again"
            )
        return plan

    def claim(self, name: str, run: str) -> None:
        """Mark a plan as started, atomically and for good. Raise PlanRefused if it already is."""
        mark = json.dumps({"format": 1, "run": run, "time": time.time()}).encode()
        try:
            descriptor = os.open(self._mark(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError as error:
            raise PlanRefused(
                f"plan {name} was started already, as run {self.started_as(name) or 'unknown'}; a "
                "plan starts one run: for another like it, make a new plan"
            ) from error
        try:
            os.write(descriptor, mark)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def started_as(self, name: str) -> str:
        """Return the id of the run that a plan started, or "" if it started none."""
        with contextlib.suppress(OSError, ValueError):
            return str(read_json(self._mark(name)).get("run") or "")
        return ""

    def newest(self, author: str = "", count: int = 50) -> list[StoredPlan]:
        """Return the newest plans, of all authors or of one, without unreadable plans."""
        paths = self._folder.glob(f"{author or '*'}/plan-*.json")
        found = []
        for path in sorted(paths, key=_modified, reverse=True)[:count]:
            with contextlib.suppress(PlanRefused):
                found.append(self.read(path.stem))
        return found

    def refuse(self, name: str, author: str, reason: str) -> None:
        """Mark a plan as refused; it cannot be started any more."""
        mark = {"format": 1, "author": author, "reason": reason, "time": time.time()}
        write_json(self._folder / f"{name}.refused", mark)

    def refusal_of(self, name: str) -> str | None:
        """Return the reason of a plan's refusal, which may be empty; None if it was not refused."""
        path = self._folder / f"{name}.refused"
        if not path.is_file():
            return None
        with contextlib.suppress(OSError, ValueError):
            return str(read_json(path).get("reason") or "")
        return ""

    def _mark(self, name: str) -> Path:
        """Return the file that marks a plan as started. It is kept when the plan is deleted."""
        return self._folder / f"{name}.started"


def digest_of(resolved: JsonObject) -> str:
    """Return the SHA-256 digest of a plan's resolved content, in hex."""
    return hashlib.sha256(json.dumps(resolved, sort_keys=True).encode()).hexdigest()


def plain(table: JsonObject) -> JsonObject:
    """Return a copy of the table with the values that a round trip through JSON gives."""
    copy: JsonObject = json.loads(json.dumps(table, default=repr))
    return copy


def changes(before: JsonObject, now: JsonObject) -> str:
    """Return the first names whose values differ, as text; empty if none differ."""
    names = list(_differing(before, now))
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more


def _differing(before: JsonObject, now: JsonObject) -> Iterator[str]:
    old, new = dict(flatten(before)), dict(flatten(now))
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield name.removeprefix("spec.").removeprefix("settings.").removeprefix("files.")


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
