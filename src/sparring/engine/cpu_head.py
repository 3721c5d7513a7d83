"""Makes TRL's fused head score only completions, in small tiles, on a CPU.

With Triton, TRL skips prompt positions. Without it, TRL scores them, to keep shapes constant for
devices that compile. A CPU does not compile, and most of an agent's tokens are prompt tokens:
scoring them takes most of the memory of an update, for values that are masked. TRL's tiles of 4,096
tokens suit a GPU; on a CPU, where each operation copies its tile, one tile takes gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import trl.kernels.chunked_logprob as tiles
import trl.trainer.utils as trl_utils

_TOKENS_PER_TILE = 128


@contextmanager
def small_tiles_on_cpu(device: torch.device) -> Iterator[None]:
    """Patch TRL's head inside the context if `device` is a CPU. The context must contain both the
    forward and the backward pass."""
    if device.type != "cpu":
        yield
        return
    use_triton, size = trl_utils._use_triton, tiles.TOKEN_CHUNK_SIZE
    trl_utils._use_triton = lambda _: True
    tiles.TOKEN_CHUNK_SIZE = _TOKENS_PER_TILE
    try:
        yield
    finally:
        trl_utils._use_triton, tiles.TOKEN_CHUNK_SIZE = use_triton, size
