"""Lists the requirements of a run that this machine does not meet."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from sparring.contracts.training import TrainSettings
from sparring.installed import how_to_install, plugin_names
from sparring.operations.doctor import (
    TESTED,
    Finding,
    key_finding,
    package_finding,
    sandbox_findings,
)
from sparring.operations.resolution import RunSettings

_EXTRAS = {"train": ("local", "train"), "eval": ("local",)}
_KEYS = {"wandb": "WANDB_API_KEY"}


def missing_for(run_settings: RunSettings) -> tuple[Finding, ...]:
    """Return a finding for each unmet requirement, with its fix; a tracker's is a warning."""
    return tuple(_missing(run_settings))


def _missing(run_settings: RunSettings) -> Iterator[Finding]:
    play = run_settings.checked.play
    for name, (_, extra) in TESTED.items():
        if extra in ("", *_EXTRAS[run_settings.kind]) and not _is_installed(
            finding := package_finding(name)
        ):
            yield finding.model_copy(update={"standing": "missing"})
    if run_settings.environment.description.needs_sandbox and not play.unsandboxed:
        for finding in sandbox_findings():
            if finding.what == "sandbox" and finding.standing != "ok":
                yield finding.model_copy(update={"standing": "missing"})
    if isinstance(play, TrainSettings):
        for tracker in play.report_to:
            yield from _tracker(tracker)
        if play.warm_start is not None:
            yield from _warm_start(play.warm_start.source, run_settings.project.runs)
    if run_settings.checked.supervision.launcher == "slurm" and shutil.which("sbatch") is None:
        fix = "start it on a host of the cluster, or set launcher to local"
        yield Finding(what="Slurm", standing="missing", found="sbatch is not installed", fix=fix)


def _warm_start(source: str, runs: Path) -> Iterator[Finding]:
    if not Path(source).exists() and not (runs / source).is_dir():
        found = f"there is no file and no run {source[:80]!r}"
        fix = "name a JSONL of demonstrations or a run, or set warm_start to null"
        yield Finding(what="warm_start", standing="missing", found=found, fix=fix)


def _tracker(name: str) -> Iterator[Finding]:
    """Yield warnings only, because a tracker that fails never ends a run."""
    if find_spec(name) is None and name not in plugin_names("sparring.trackers"):
        fix = f"{how_to_install(name)}; otherwise the run trains without this tracker"
        yield Finding(what=name, standing="warning", found="not installed", fix=fix)
    if name in _KEYS and key_finding(_KEYS[name], "").standing != "ok":
        fix = f"export {_KEYS[name]}=…; otherwise metrics are written offline"
        yield Finding(what=_KEYS[name], standing="warning", found="not set", fix=fix)


def _is_installed(finding: Finding) -> bool:
    return finding.standing in ("ok", "warning")
