"""Policies, which sample from a model, and codecs, which convert between messages and token ids.

This module imports nothing, so that torch, transformers and the openai client are imported only
with a policy that needs them.
"""
