"""The typed contents of a run's folder, for both planes."""

from __future__ import annotations

from pydantic import ValidationError

from sparring.contracts.errors import InvalidInput
from sparring.contracts.kinds import run_kind
from sparring.contracts.specs import RunSpec
from sparring.run_folder.layout import RunFolder


def read_run_spec(folder: RunFolder) -> RunSpec:
    """Read and validate a run's spec. Raises InvalidInput for an unknown kind or invalid fields."""
    spec = folder.read_spec()
    kind = run_kind(str(spec.get("kind")), folder.spec)
    try:
        return kind.spec.model_validate(spec)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InvalidInput(f"{folder.spec}: {field}: {first['msg']}") from error
