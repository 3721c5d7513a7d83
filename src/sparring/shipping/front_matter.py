"""Reads and writes the YAML metadata at the top of a model card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def read_front_matter(text: str) -> dict[str, Any]:
    """Return the metadata of a model card; empty if the YAML block is missing or invalid."""
    import yaml

    if not text.startswith("---"):
        return {}
    block, end, _ = text[3:].partition("\n---")
    if not end:
        return {}
    try:
        value = yaml.safe_load(block)
    except yaml.YAMLError:
        return {}
    return value if isinstance(value, dict) else {}


def with_front_matter(metadata: Mapping[str, Any], text: str) -> str:
    """Return `text` with `metadata` as a YAML block at its top."""
    import yaml

    block = yaml.safe_dump(dict(metadata), sort_keys=False, allow_unicode=True)
    return f"---\n{block}---\n\n{text}"
