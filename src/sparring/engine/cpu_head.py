"""TRL's fused head on a CPU: completions scored in small tiles, prompts left out.

TRL leaves prompt positions out where Triton runs, and scores all of them elsewhere, so that
devices which compile keep their shapes. A CPU compiles nothing, and an agent's prompt is most
of its tokens: scoring it takes most of the memory of an update, for numbers that are masked. Its
tiles of 4,096 tokens suit a GPU; on a CPU, where each operation on a tile makes a copy, one such
tile takes gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import trl.kernels.chunked_logprob as tiles
import trl.trainer.utils as trl_utils

_TOKENS_A_TILE = 128


@contextmanager
def scored_sparingly(device: torch.device) -> Iterator[None]:
    """Within this, which is to hold the forward and the backward pass, TRL's head on a CPU scores
    completions only, a small tile at a time."""
    if device.type != "cpu":
        yield
        return
    use_triton, size = trl_utils._use_triton, tiles.TOKEN_CHUNK_SIZE
    trl_utils._use_triton = lambda _: True
    tiles.TOKEN_CHUNK_SIZE = _TOKENS_A_TILE
    try:
        yield
    finally:
        trl_utils._use_triton, tiles.TOKEN_CHUNK_SIZE = use_triton, size
