"""Describes invalid arguments of a tool call so that a model can correct them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

import jsonschema

_MAX_PROBLEMS, _MAX_LENGTH = 3, 120


def argument_problems(arguments: str, schema: Mapping[str, Any]) -> str:
    """Return the first three schema violations, separated by semicolons; empty if there are none.

    `arguments` must be valid JSON.
    """
    problems = jsonschema.Draft202012Validator(schema).iter_errors(json.loads(arguments))
    return "; ".join(
        f"{problem.json_path.removeprefix('$.').removeprefix('$') or 'arguments'}: "
        f"{problem.message[:_MAX_LENGTH]}"
        for problem in islice(problems, _MAX_PROBLEMS)
    )
