"""Plans on disk: what was asked, what that came to, and that it was started, once.

A plan's id carries the beginning of the digest of all that it resolved to, so that a file that
somebody changed is no plan any more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sparring.contracts.errors import PlanRefused
from sparring.contracts.specs import Frozen
from sparring.run_folder.files import read_json, write_json
from sparring.settings.names import flatten

_IDS = re.compile(r"plan-[0-9a-f]{16}-[0-9a-f]{6}")
_KEPT = 1_000
_TOLD = 6


class PlanRecord(Frozen):
    """One plan, as it is kept."""

    format: int = 1
    plan: str
    author: str
    role: str
    created: float
    revises: str = ""
    asked: dict[str, Any]
    resolved: dict[str, Any]


class Plans:
    """The plans of one folder of runs."""

    def __init__(self, runs: Path) -> None:
        self._folder = runs / ".sparring" / "plans"

    def keep(
        self, author: str, role: str, asked: dict[str, Any], resolved: dict[str, Any], revises: str
    ) -> PlanRecord:
        told = plain(resolved)
        name = f"plan-{digest_of(told)[:16]}-{secrets.token_hex(3)}"
        record = PlanRecord(
            plan=name, author=author, role=role, created=time.time(), revises=revises,
            asked=plain(asked), resolved=told,
        )  # fmt: skip
        place = self._folder / author
        write_json(place / f"{name}.json", record.model_dump(mode="json"))
        _forget_oldest(place)
        return record

    def read(self, name: str) -> PlanRecord:
        places = list(self._folder.glob(f"*/{name}.json")) if _IDS.fullmatch(name) else []
        if not places:
            raise PlanRefused(f"there is no plan {name[:80]!r}; plan the run first, or again")
        try:
            record = PlanRecord.model_validate(read_json(places[0]))
        except (OSError, ValueError) as error:
            raise PlanRefused(f"plan {name} cannot be read any more; plan the run again") from error
        if not record.plan.startswith(f"plan-{digest_of(record.resolved)[:16]}-"):
            raise PlanRefused(f"plan {name} was changed on disk since it was made; plan it again")
        return record

    def claim(self, name: str, run: str) -> None:
        """Nobody else starts this plan from now on, whatever becomes of us."""
        told = json.dumps({"format": 1, "run": run, "time": time.time()}).encode()
        try:
            descriptor = os.open(self._mark(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError as error:
            raise PlanRefused(
                f"plan {name} was started already, as run {self.started_as(name) or 'unknown'}; a "
                "plan starts one run: for another like it, plan again"
            ) from error
        try:
            os.write(descriptor, told)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def started_as(self, name: str) -> str:
        """The run that came of a plan; empty where none has."""
        with contextlib.suppress(OSError, ValueError):
            return str(read_json(self._mark(name)).get("run") or "")
        return ""

    def _mark(self, name: str) -> Path:
        """Kept for ever: a plan that is forgotten must not start again."""
        return self._folder / f"{name}.started"


def _forget_oldest(folder: Path) -> None:
    """Plans are small, and an operator makes many: of each, the newest are kept."""
    there = list(folder.glob("plan-*.json"))
    for path in sorted(there, key=_age)[: max(0, len(there) - _KEPT)]:
        path.unlink(missing_ok=True)


def digest_of(resolved: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(resolved, sort_keys=True).encode()).hexdigest()


def plain(table: Mapping[str, Any]) -> dict[str, Any]:
    """As it will be read back."""
    read: dict[str, Any] = json.loads(json.dumps(table, default=repr))
    return read


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs, in few words; empty where nothing does."""
    names = list(_differing(before, now))
    more = f" and {len(names) - _TOLD} more" if len(names) > _TOLD else ""
    return ", ".join(names[:_TOLD]) + more


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    one, other = dict(flatten(before)), dict(flatten(now))
    for name in sorted(one.keys() | other.keys()):
        if one.get(name) != other.get(name):
            yield name.removeprefix("spec.").removeprefix("settings.").removeprefix("files.")


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
