"""Plays rollouts: the SDK's Runner runs the user's agent with a policy as its model.

Owns deadlines, tool concurrency, endings and token rows. Computes no rewards and does not
depend on an engine.
"""

from sparring.player.player import Play, Played, Player

__all__ = ["Play", "Played", "Player"]
