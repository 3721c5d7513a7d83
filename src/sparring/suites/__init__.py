"""Suites of cases: loading, ids, splits and digests."""

from sparring.suites.suite import Suite

__all__ = ["Suite"]
