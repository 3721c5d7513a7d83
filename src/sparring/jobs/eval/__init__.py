"""Runs of kind eval: play cases, judge and log every rollout, write a summary."""
