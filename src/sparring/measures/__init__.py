"""Judges rollouts and blends their verdicts into one reward, independently of the engine.

Built-in measures are imported from this package.
"""

from sparring.measures.assertions import assertions
from sparring.measures.builtin import (
    contains,
    exact,
    json_schema,
    length,
    no_tool_failed,
    numeric,
    regex,
    tool_called,
)
from sparring.measures.declaration import Measure, measure
from sparring.measures.judging import MeasureSet
from sparring.measures.llm_judge import llm_judge

__all__ = [
    "Measure",
    "MeasureSet",
    "assertions",
    "contains",
    "exact",
    "json_schema",
    "length",
    "llm_judge",
    "measure",
    "no_tool_failed",
    "numeric",
    "regex",
    "tool_called",
]
