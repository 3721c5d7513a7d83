"""Sparring trains the agent you ship on the evals you already have."""
