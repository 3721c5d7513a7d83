"""Operation that builds a development model in the cache."""

from __future__ import annotations

import subprocess
import sys

from pydantic import Field

from sparring.contracts.errors import SparringError
from sparring.contracts.specs import Frozen
from sparring.installed import require_extra
from sparring.operations.operation import Caller, Forms, Role, operation


class FetchModel(Frozen):
    """The model to build."""

    name: str = Field(description="the model: tiny or smollm2")


class FetchedModel(Frozen):
    """The model, and its folder in the cache."""

    name: str
    folder: str


@operation("models.fetch", role=Role.OWNER, changes_state=True, forms=Forms(cli="models fetch"))
def fetch_model(request: FetchModel, _: Caller) -> FetchedModel:
    """Build a development model (tiny or smollm2) in the cache, unless the cache has it."""
    require_extra("local", "`models fetch`")
    process = subprocess.run(
        [sys.executable, "-m", "sparring.models", request.name],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        lines = process.stderr.strip().splitlines()
        raise SparringError(lines[-1] if lines else f"building {request.name} failed")
    return FetchedModel(name=request.name, folder=process.stdout.strip().splitlines()[-1])
