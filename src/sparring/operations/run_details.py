"""Operations that show the settings of a run with their sources, and its checkpoints."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from sparring.contracts.foreign import MIXED, MixedText
from sparring.contracts.specs import Frozen, Table
from sparring.operations.operation import Caller, Role, operation
from sparring.operations.run_views import RunQuery
from sparring.run_folder.checkpoint_list import best_of, chosen_of, list_checkpoints
from sparring.runs.finding import find_run
from sparring.settings.layers import DEFAULTS, flatten


class RunSetting(Frozen):
    """One setting of a run."""

    name: MixedText
    value: Annotated[Any, MIXED] = None
    source: str = Field(description="a file and line, an environment, the command, or defaults")
    locked_by: str = ""


class RunDetails(Frozen):
    """The target of a run, and its settings."""

    run: str
    kind: str
    target: MixedText
    split: str = ""
    plan: str = ""
    after: str = ""
    training: str = Field(default="", description="the training run that was proved or shipped")
    settings: tuple[RunSetting, ...]
    measures: Annotated[Table, MIXED] = Field(default_factory=dict)
    code_digest: str = ""
    digests: Annotated[Table, MIXED] = Field(
        default_factory=dict, description="of what the chosen checkpoint was trained with"
    )
    versions: Annotated[Table, MIXED] = Field(default_factory=dict, description="of packages")


class CheckpointLine(Frozen):
    """One checkpoint."""

    step: int
    score: float | None = Field(default=None, description="mean validation reward")
    is_best: bool = False
    path: str
    bytes: int = 0


class Checkpoints(Frozen):
    """The checkpoints of a run, by step."""

    run: str
    checkpoints: tuple[CheckpointLine, ...]


@operation("run.details", role=Role.VIEWER, changes_state=False)
def run_details(request: RunQuery, caller: Caller) -> RunDetails:
    """Show the settings, config and policy of a run, each value with its source and its lock."""
    folder = find_run(caller.runs, request.run)
    spec = folder.read_spec()
    sources, locks = spec.get("sources") or {}, spec.get("locks") or {}
    chosen = chosen_of(list_checkpoints(folder.checkpoints))
    manifest = chosen.manifest if chosen else {}
    values = {
        **dict(flatten(spec.get("settings") or spec.get("play") or {})),
        **dict(flatten({"config": spec.get("config") or {}})),
        **{f"policy.{name}": each for name, each in (spec.get("policy") or {}).items() if each},
    }
    return RunDetails(
        run=folder.id,
        kind=str(spec.get("kind")),
        target=str(spec.get("target") or ""),
        split=str(spec.get("split") or ""),
        plan=str(spec.get("plan") or ""),
        after=str(spec.get("after") or ""),
        training=str(spec.get("run") or ""),
        settings=tuple(
            RunSetting(
                name=name,
                value=value,
                source=str(_of(name, sources) or DEFAULTS),
                locked_by=str(_of(name, locks) or ""),
            )
            for name, value in sorted(values.items())
        ),
        measures=dict(spec.get("measures") or {}),
        code_digest=str(spec.get("code_digest") or ""),
        digests=_texts(manifest.get("digests")),
        versions=_texts(manifest.get("versions")),
    )


@operation("run.checkpoints", role=Role.VIEWER, changes_state=False)
def run_checkpoints(request: RunQuery, caller: Caller) -> Checkpoints:
    """List the checkpoints of a run with their validation scores."""
    folder = find_run(caller.runs, request.run)
    found = list_checkpoints(folder.checkpoints)
    best = best_of(found)
    return Checkpoints(
        run=folder.id,
        checkpoints=tuple(
            CheckpointLine(
                step=each.step,
                score=each.score,
                is_best=best is not None and each.step == best.step,
                path=str(each.path),
                bytes=_size(each.manifest),
            )
            for each in found
        ),
    )


def _of(name: str, table: Table) -> Any:
    """Return the entry of a dotted name, or of the nearest table that contains it. In `table`,
    names such as `policy.model` have no `policy.`."""
    parts = name.removeprefix("policy.").split(".")
    while parts:
        if found := table.get(".".join(parts)):
            return found
        parts.pop()
    return None


def _size(manifest: Any) -> int:
    files = manifest.get("files") or {}
    return sum(int(each.get("bytes") or each.get("size") or 0) for each in files.values())


def _texts(table: Table | None) -> Table:
    return {name: str(value) for name, value in (table or {}).items()}
