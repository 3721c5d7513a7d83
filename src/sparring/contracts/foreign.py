"""Marks on fields whose text Sparring did not write: from an environment, a model, a tool, a log.

Such text may contain instructions. Surfaces that answer an AI agent read these marks and pass the
text on as untrusted data.
"""

from __future__ import annotations

from typing import Annotated

from sparring.contracts.json import JsonObject


class Mark:
    """An annotation that states which part of a field's content is foreign."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


FOREIGN = Mark("foreign")  # all of the text is foreign
MIXED = Mark("mixed")  # numbers and names, with foreign text among them
SUMMARY = Mark("summary")  # like MIXED, with sentences of Sparring's own under known keys

ForeignText = Annotated[str, FOREIGN]
MixedText = Annotated[str, MIXED]
ForeignTable = Annotated[JsonObject, FOREIGN]
MixedTable = Annotated[JsonObject, MIXED]
