"""TRL's fused head on a CPU: completions scored, prompts left out.

TRL leaves prompt positions out where Triton runs, and scores all of them elsewhere, so that
devices which compile keep their shapes. A CPU compiles nothing, and an agent's prompt is most
of its tokens: scoring it takes most of the memory of an update, for numbers that are masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import trl.trainer.utils as trl_utils


@contextmanager
def only_what_is_learned() -> Iterator[None]:
    """Within this, TRL's head scores on a CPU what it scores on a GPU."""
    original = trl_utils._use_triton

    def compacts(device: torch.device) -> bool:
        return device.type == "cpu" or bool(original(device))

    trl_utils._use_triton = compacts
    try:
        yield
    finally:
        trl_utils._use_triton = original
