"""Marks for words that are not ours: written by an environment, a model, a tool or a process.

They can say anything, also "ignore your instructions". A surface that answers an AI agent hands
them on as data, by these marks on the fields that hold them.
"""

from __future__ import annotations

from typing import Annotated, Any


class Mark:
    """Says something of a field's content."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


FOREIGN = Mark("foreign")  # all of it
MIXED = Mark("mixed")  # figures and names, with words of others among them
SUMMARY = Mark("summary")  # the same, with sentences of ours under keys of ours

ForeignText = Annotated[str, FOREIGN]
ForeignTable = Annotated[dict[str, Any], FOREIGN]
MixedTable = Annotated[dict[str, Any], MIXED]
