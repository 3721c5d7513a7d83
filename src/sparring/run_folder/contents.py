"""The typed contents of a run's folder, for both planes."""

from __future__ import annotations

from sparring.contracts.kinds import run_kind
from sparring.contracts.specs import RunSpec
from sparring.run_folder.layout import RunFolder


def read_run_spec(folder: RunFolder) -> RunSpec:
    """Read and validate a run's spec. Raises InvalidInput for an unknown kind of run."""
    spec = folder.read_spec()
    return run_kind(str(spec.get("kind")), folder.spec).spec.model_validate(spec)
