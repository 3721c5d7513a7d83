"""Plays agents of any framework through an OpenAI- and Anthropic-compatible endpoint.

Owns sessions, trees of messages and wire formats. Imports policies and the player's episodes, but
neither measures nor engines.
"""

from sparring.gateway.calls import ModelCall
from sparring.gateway.sessions import Session

__all__ = ["ModelCall", "Session"]
