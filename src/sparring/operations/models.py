"""Development models: building them once."""

from __future__ import annotations

import subprocess
import sys

from sparring.contracts.errors import SparringError
from sparring.contracts.specs import Frozen
from sparring.operations.operation import Caller, Forms, Role, operation


class FetchModel(Frozen):
    name: str


class FetchedModel(Frozen):
    name: str
    folder: str


@operation("models.fetch", role=Role.OWNER, changes_state=True, forms=Forms(cli="models fetch"))
def fetch_model(request: FetchModel, _: Caller) -> FetchedModel:
    """Build a development model (tiny, smollm2) into the cache, or find it there."""
    done = subprocess.run(
        [sys.executable, "-m", "sparring.models", request.name],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SparringError(done.stderr.strip().splitlines()[-1] if done.stderr else "it failed")
    return FetchedModel(name=request.name, folder=done.stdout.strip().splitlines()[-1])
