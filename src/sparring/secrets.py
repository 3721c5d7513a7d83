"""Reads API keys from environment variables and files. A leaf that both planes use."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import SecretStr


def read_key(variable: str | None) -> SecretStr | None:
    """Return the key in the environment variable `variable`, else in the file that
    `<variable>_FILE` names; None if neither is set, or no variable is named."""
    if variable is None:
        return None
    if value := os.environ.get(variable):
        return SecretStr(value)
    if path := os.environ.get(f"{variable}_FILE"):
        return SecretStr(Path(path).read_text(encoding="utf-8").strip())
    return None
