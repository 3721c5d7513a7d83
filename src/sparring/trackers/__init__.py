"""Metrics in somebody else's viewer: trackio, W&B, MLflow, TensorBoard, by name.

A tracker that is missing or fails warns once and never ends a run: the run folder has it all.
"""

from sparring.trackers.trackers import TRACKERS, Trackers

__all__ = ["TRACKERS", "Trackers"]
