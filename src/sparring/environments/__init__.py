"""Environments: agent, suite and measures in one file, found by name."""

from sparring.environments.environment import Environment

__all__ = ["Environment"]
