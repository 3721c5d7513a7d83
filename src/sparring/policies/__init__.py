"""Policies, which sample from a model, and codecs between messages and token ids.

This module imports nothing: torch, transformers and the openai client load with the policy
that needs them.
"""
