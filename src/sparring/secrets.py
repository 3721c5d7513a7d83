"""Reads API keys: the only module that does. A leaf that both planes use.

A key comes from an environment variable, or from a file that one names.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import SecretStr


def read_key(variable: str) -> SecretStr | None:
    """Return the key in `variable`, or in the file that `<variable>_FILE` names; else None."""
    if value := os.environ.get(variable):
        return SecretStr(value)
    if path := os.environ.get(f"{variable}_FILE"):
        return SecretStr(Path(path).read_text(encoding="utf-8").strip())
    return None
