"""Turning token ids into sampled ids and log-probabilities, and messages into token ids.

Nothing is imported here: torch, transformers and the openai client load with the policy
that needs them.
"""
