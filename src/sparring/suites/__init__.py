"""Suites of cases: loading, ids, splits and digests. A caller gets held-out cases only by naming
their split."""

from sparring.suites.suite import Suite

__all__ = ["Suite"]
