"""What a run of this kind would miss on this machine, all of it at once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from sparring.operations.doctor import (
    TESTED,
    Finding,
    key_finding,
    package_finding,
    sandbox_findings,
)
from sparring.operations.settling import Settled

_EXTRAS = {"train": ("local", "train"), "eval": ("local",)}
_KEYS = {"wandb": "WANDB_API_KEY"}


def missing_for(settled: Settled) -> tuple[Finding, ...]:
    """Each with its fix. What would only be better is left out."""
    return tuple(_missing(settled))


def _missing(settled: Settled) -> Iterator[Finding]:
    for name, (_, extra) in TESTED.items():
        if extra in ("", *_EXTRAS[settled.kind]) and not _is_there(found := package_finding(name)):
            yield found.model_copy(update={"standing": "missing"})
    if settled.description.needs_sandbox and not settled.values.get("unsandboxed"):
        for found in sandbox_findings():
            if found.what == "sandbox" and found.standing != "ok":
                yield found.model_copy(update={"standing": "missing"})
    for tracker in settled.values.get("report_to") or ():
        yield from _tracker(str(tracker))
    yield from _warm_start(settled)
    if settled.values.get("launcher") == "slurm" and shutil.which("sbatch") is None:
        fix = "start it on a host of the cluster, or set launcher to local"
        yield Finding(what="Slurm", standing="missing", found="there is no sbatch here", fix=fix)


def _warm_start(settled: Settled) -> Iterator[Finding]:
    source = (settled.values.get("warm_start") or {}).get("source")
    runs = settled.project.runs
    if isinstance(source, str) and not Path(source).exists() and not (runs / source).is_dir():
        told = f"there is no file and no run {source[:80]!r}"
        fix = "name a JSONL of demonstrations or a run, or set warm_start to null"
        yield Finding(what="warm_start", standing="missing", found=told, fix=fix)


def _tracker(name: str) -> Iterator[Finding]:
    """A tracker that fails never ends a run; that it will is told all the same."""
    if find_spec(name) is None:
        fix = f"pip install 'sparring[{name}]', or it is trained without"
        yield Finding(what=name, standing="warning", found="not installed", fix=fix)
    if name in _KEYS and key_finding(_KEYS[name], "").standing != "ok":
        fix = f"export {_KEYS[name]}=…, or it is written offline"
        yield Finding(what=_KEYS[name], standing="warning", found="not set", fix=fix)


def _is_there(found: Finding) -> bool:
    return found.standing in ("ok", "warning")
