"""Environments: agent, suite, measures and config in one file, found by name."""

from sparring.environments.environment import Environment
from sparring.environments.loading import load_environment

__all__ = ["Environment", "load_environment"]
