"""Plays agents of any framework through an OpenAI- and Anthropic-compatible endpoint.

Owns sessions, trees of messages and wire formats. Imports policies and the player's episodes, but
neither measures nor engines.
"""

from sparring.gateway.sessions import Session
from sparring.player.recorder import ModelCall

__all__ = ["ModelCall", "Session"]
