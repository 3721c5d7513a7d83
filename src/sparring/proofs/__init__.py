"""Computes statistics, intervals and verdicts from rollouts, with pure functions."""
