"""A run by what people call it: its id, the beginning or the last letters of it, or the name of
its environment, which means the newest run of that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sparring.contracts.errors import RunNotFound
from sparring.run_folder import RunFolder
from sparring.run_folder.ids import is_plain_name, is_run_of, slug

if TYPE_CHECKING:
    from sparring.runs.index import Index


def find_run(runs: Path, name: str, kind: str = "") -> RunFolder:
    """The run that a name means. The name of an environment means its newest run, of `kind` where
    there is one. Where a name could mean several runs, they are listed."""
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
        for row in index.named(training):
            if (runs / f"proof-{row.id}" / "spec.json").is_file():
                return RunFolder(runs / f"proof-{row.id}")
    newest = _newest_of(index, name, kind)
    if newest:
        return RunFolder(runs / newest)
    names = [row.id for row in index.named(slug(name)) or index.named(name)]
    proofs = {f"proof-{each}" for each in names}
    names = [each for each in names if each not in proofs]  # the training is meant
    if len(names) == 1:
        return RunFolder(runs / names[0])
    if names:
        listed = ", ".join(names[:5])
        raise RunNotFound(
            f"{name!r} fits {'several' if len(names) > 5 else len(names)} runs in {runs}, the "
            f"newest first: {listed}; write more of it"
        )
    raise _not_found(runs, name)


def _newest_of(index: Index, environment: str, kind: str) -> str:
    """The id of an environment's newest run; a proof is found by its training."""
    from sparring.runs.index import Query

    if kind:
        for row in index.page(Query(environment=environment, kind=kind, count=1)):
            return row.id
    for row in index.page(Query(environment=environment)):
        if row.kind != "prove":
            return row.id
    named = [row.id for row in index.named(slug(environment)) if is_run_of(row.id, environment)]
    return named[0] if named else ""


def _not_found(runs: Path, name: str) -> RunNotFound:
    listed = "none yet"
    if runs.is_dir():
        from sparring.runs.index import Index, Query

        listed = ", ".join(row.id for row in Index(runs).page(Query(count=3))) or listed
    return RunNotFound(
        f"there is no run {name[:80]!r} in {runs.absolute()}; the newest are: {listed}"
    )
