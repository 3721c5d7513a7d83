"""Parses the first 64 KiB of a long record, which hold the fields that a list shows."""

from __future__ import annotations

import json
import re
from typing import cast

from sparring.contracts.json import JsonObject
from sparring.run_folder.records import RolloutRecord

HEAD_BYTES = 65_536
_DECODER = json.JSONDecoder()
_KEY = re.compile(r'[{,]"((?:[^"\\]|\\.){1,80})":')
_DEFAULTS: JsonObject = {
    "id": "",
    "case": {},
    "detail": "",
    "answer": "",
    "judgements": [],
}


def read_head(line: bytes) -> RolloutRecord:
    """Return the fields at the beginning of a record, up to the first field that is cut off.
    Missing fields that a list needs are empty, and `is_cut` is true."""
    text = line[:HEAD_BYTES].decode("ascii", "replace")
    found: JsonObject = {}
    place = 0
    while (match := _KEY.match(text, place)) is not None:
        try:
            value, place = _DECODER.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            break
        found[match[1]] = value
    case = {"id": "", "input": None, **(found.get("case") or _cut_case(text))}
    return cast("RolloutRecord", {**_DEFAULTS, **found, "case": case, "is_cut": True})


def _cut_case(text: str) -> JsonObject:
    """Return the id of a case whose input is cut off."""
    match = re.search(r'"case":\{"id":', text)
    if match is None:
        return {}
    try:
        return {"id": _DECODER.raw_decode(text, match.end())[0]}
    except ValueError:
        return {}
