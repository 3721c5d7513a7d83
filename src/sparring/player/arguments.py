"""What is wrong with the arguments of a tool call, in words that a model can act on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

import jsonschema

_PROBLEMS, _LENGTH = 3, 120


def argument_problems(arguments: str, schema: Mapping[str, Any]) -> str:
    """The first few; empty where the schema has nothing against them."""
    problems = jsonschema.Draft202012Validator(schema).iter_errors(json.loads(arguments))
    return "; ".join(
        f"{problem.json_path.removeprefix('$.').removeprefix('$') or 'arguments'}: "
        f"{problem.message[:_LENGTH]}"
        for problem in islice(problems, _PROBLEMS)
    )
