"""Sends a run's metrics to TensorBoard, trackio, W&B or MLflow.

A tracker that is not installed or fails causes one warning and never ends a run; the run folder
holds every metric.
"""

from sparring.trackers.trackers import Trackers, known_trackers

__all__ = ["Trackers", "known_trackers"]
