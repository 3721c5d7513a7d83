"""Keys: read from the environment or from a file it names, and from nowhere else.

A leaf that both planes use, so that no other module reads the environment for a key.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import SecretStr


def read_key(variable: str) -> SecretStr | None:
    """The key in `variable`, or in the file that `variable_FILE` names; None without one."""
    if value := os.environ.get(variable):
        return SecretStr(value)
    if path := os.environ.get(f"{variable}_FILE"):
        return SecretStr(Path(path).read_text(encoding="utf-8").strip())
    return None
