"""Cases: loading, ids, splitting, digests. Held-out cases are handed out by name only."""

from sparring.suites.suite import Suite

__all__ = ["Suite"]
