"""Reads rollouts back from a run's logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparring.contracts.rollouts import Rollout
from sparring.run_folder.records import from_record
from sparring.run_folder.sharded_log import ShardedLog


def read_rollouts(places: Sequence[Path]) -> list[Rollout]:
    """Return every rollout of the logs, in order; logs that do not exist are skipped."""
    log = ShardedLog([place for place in places if place.is_dir()])
    return [from_record(record) for record in log.records(0, len(log))]
