"""Finds a run by its id, by the beginning or end of its id, or by the name of its environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.errors import AmbiguousRun, RunNotFound
from sparring.run_folder import RunFolder
from sparring.run_folder.layout import hyphenated, is_id, is_plain_name, is_run_of, slug
from sparring.runs.index import Index, Query

_MOST_NAMED = 200  # runs that are searched for one of a kind


def find_run(runs: Path, name: str, kind: str = "") -> RunFolder:
    """Return the run that `name` identifies. For an environment's name, this is its newest run of
    `kind` or, if there is none, its newest run that is neither a proof nor a shipment. Raises
    RunNotFound or AmbiguousRun."""
    if not is_plain_name(name):
        raise _not_found(runs, name)
    if (runs / name / "spec.json").is_file():
        return RunFolder(runs / name)
    if not runs.is_dir():
        raise _not_found(runs, name)
    search = _Search(runs, Index(runs), name, kind)
    for rule in (_proof_of_environment, _proof_of_run, _run_of_environment, _part_of_id):
        ids = rule(search)
        if len(ids) == 1:
            return RunFolder(runs / ids[0])
        if ids:
            raise _ambiguous(name, ids, runs)
    raise _not_found(runs, name)


@dataclass(frozen=True, slots=True)
class _Search:
    runs: Path
    index: Index
    name: str
    kind: str

    @property
    def proved(self) -> str:
        """What follows `proof-` in the name; empty if it does not begin so, or is too short."""
        training = self.name.removeprefix("proof-")
        return training if training != self.name and len(training) >= 4 else ""


def _proof_of_environment(search: _Search) -> list[str]:
    """`proof-ENVIRONMENT` is the environment's newest proof, and never that of a longer name."""
    if not search.proved:
        return []
    for environment in (search.proved, search.proved.replace("-", "_")):  # as a file may be called
        if newest := _newest_of_kind(search.index, environment, "prove"):
            return [newest]
        if _newest_of_kind(search.index, environment, "train"):
            raise _not_found(search.runs, search.name)
    return []


def _proof_of_run(search: _Search) -> list[str]:
    """`proof-PART` is the proof of the training with this part of an id, also if it was not queued
    with its training."""
    if not search.proved:
        return []
    beginning = hyphenated(search.proved)
    rows = search.index.named(beginning, _MOST_NAMED) or search.index.named(
        search.proved, _MOST_NAMED
    )
    queued = [f"proof-{row.id}" for row in rows]
    found = [proof for proof in queued if (search.runs / proof / "spec.json").is_file()]
    return found or [row.id for row in rows if row.id.startswith("proof-")]


def _run_of_environment(search: _Search) -> list[str]:
    newest = "" if is_id(search.name) else _newest_of(search.index, search.name, search.kind)
    return [newest] if newest else []


def _part_of_id(search: _Search) -> list[str]:
    """The beginning or the end of an id; a training comes before its proof."""
    rows = search.index.named(hyphenated(search.name)) or search.index.named(search.name)
    proofs = {f"proof-{row.id}" for row in rows}
    return [row.id for row in rows if row.id not in proofs]


def _newest_of_kind(index: Index, environment: str, kind: str) -> str:
    """Return the id of an environment's newest run of a kind, or an empty string."""
    rows = index.page(Query(environment=environment, kind=kind, count=1))
    return rows[0].id if rows else ""


def _ambiguous(name: str, ids: Sequence[str], runs: Path) -> AmbiguousRun:
    return AmbiguousRun(
        f"{name!r} matches {'several' if len(ids) > 5 else len(ids)} runs in {runs}, newest "
        f"first: {', '.join(ids[:5])}; give more of the id"
    )


def _newest_of(index: Index, environment: str, kind: str) -> str:
    """Return the id of an environment's newest run, or an empty string. Proofs and shipments are
    skipped unless `kind` selects them."""
    if kind and (newest := _newest_of_kind(index, environment, kind)):
        return newest
    for row in index.page(Query(environment=environment)):
        if row.kind not in ("prove", "ship"):
            return row.id
    named = index.named(slug(environment), _MOST_NAMED)
    rows = [row for row in named if is_run_of(row.id, environment)]
    rows = [row for row in rows if row.kind == kind] or rows
    return rows[0].id if rows else ""


def _not_found(runs: Path, name: str) -> RunNotFound:
    listed = ""
    if runs.is_dir():
        listed = ", ".join(row.id for row in Index(runs).page(Query(count=3)))
    others = f"the newest runs are {listed}" if listed else "there are no runs yet"
    return RunNotFound(f"there is no run {name[:80]!r} in {runs.absolute()}; {others}")
