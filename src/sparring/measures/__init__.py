"""Judging rollouts, and blending verdicts into one reward. Knows nothing of the engine."""

from sparring.measures.declaration import Measure, measure
from sparring.measures.judging import MeasureSet

__all__ = ["Measure", "MeasureSet", "measure"]
