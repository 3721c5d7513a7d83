"""Finds a run by its id, by the beginning or end of its id, or by the name of its environment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparring.contracts.errors import AmbiguousRun, RunNotFound
from sparring.run_folder import RunFolder
from sparring.run_folder.ids import hyphenated, is_id, is_plain_name, is_run_of, slug

_MOST_NAMED = 200  # runs that are searched for one of a kind

if TYPE_CHECKING:
    from sparring.runs.index import Index


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
    from sparring.runs.index import Index

    index = Index(runs)
    training = name.removeprefix("proof-")
    if training != name and len(training) >= 4:
        for environment in (training, training.replace("-", "_")):  # as a file may be called
            if newest := _newest_of_kind(index, environment, "prove"):
                return RunFolder(runs / newest)
            if _newest_of_kind(index, environment, "train"):
                raise _not_found(runs, name)  # and not the proof of a longer name
        beginning = hyphenated(training)
        named = index.named(beginning, _MOST_NAMED) or index.named(training, _MOST_NAMED)
        rows = [row.id for row in named]
        # Proofs of trainings, and proofs that were not queued with their training.
        found = [f"proof-{run}" for run in rows if (runs / f"proof-{run}/spec.json").is_file()]
        found = found or [run for run in rows if run.startswith("proof-")]
        if len(found) == 1:
            return RunFolder(runs / found[0])
        if found:
            raise _ambiguous(name, found, runs)
    newest = "" if is_id(name) else _newest_of(index, name, kind)
    if newest:
        return RunFolder(runs / newest)
    ids = [row.id for row in index.named(hyphenated(name)) or index.named(name)]
    of_these = {f"proof-{run}" for run in ids}
    ids = [run for run in ids if run not in of_these]  # prefer the training to its proof
    if len(ids) == 1:
        return RunFolder(runs / ids[0])
    if ids:
        raise _ambiguous(name, ids, runs)
    raise _not_found(runs, name)


def _newest_of_kind(index: Index, environment: str, kind: str) -> str:
    """Return the id of an environment's newest run of a kind, or an empty string."""
    from sparring.runs.index import Query

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
    from sparring.runs.index import Query

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
        from sparring.runs.index import Index, Query

        listed = ", ".join(row.id for row in Index(runs).page(Query(count=3)))
    others = f"the newest runs are {listed}" if listed else "there are no runs yet"
    return RunNotFound(f"there is no run {name[:80]!r} in {runs.absolute()}; {others}")
