"""The tested versions of the agents SDK and the differences between them."""

from __future__ import annotations

import functools
import warnings
from importlib.metadata import version

from agents.run_config import ToolErrorFormatterArgs

OLDEST, NEWEST = (0, 22), (0, 24)


def formats_exceptions() -> bool:
    """Return whether the SDK passes tool exceptions to the run config's error formatter, as it does
    from version 0.24. Earlier versions format them internally."""
    return "tool_exception" in str(ToolErrorFormatterArgs.__annotations__["kind"])


@functools.cache
def warn_if_untested_version() -> None:
    """Warn, once per process, if the installed SDK is outside the tested range."""
    installed = version("openai-agents")
    numbers = tuple(int(part) for part in installed.split(".")[:2] if part.isdigit())
    if not OLDEST <= numbers <= NEWEST:
        tested = " to ".join(".".join(map(str, bound)) for bound in (OLDEST, NEWEST))
        warnings.warn(
            f"Sparring is tested with openai-agents {tested}, but {installed} is installed; if "
            "something fails, install a tested version",
            RuntimeWarning,
            stacklevel=3,
        )
