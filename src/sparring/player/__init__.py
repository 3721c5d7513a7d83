"""Playing rollouts: the user's own agent, run by the SDK's own Runner, with our policy as
its model. Owns deadlines, tool concurrency, endings and token bookkeeping; computes no
reward and knows no trainer.
"""

from sparring.player.player import Play, Played, Player

__all__ = ["Play", "Played", "Player"]
