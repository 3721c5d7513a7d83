"""Connecting to an OpenAI-compatible server, with the key from the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparring.contracts.specs import EndpointSpec
from sparring.secrets import read_key

if TYPE_CHECKING:
    from openai import AsyncOpenAI


def connect(endpoint: EndpointSpec, *, retries: int = 5, seconds: float = 120.0) -> AsyncOpenAI:
    """A client that retries 429, 5xx and broken connections, with the server's own pause."""
    from openai import AsyncOpenAI

    key = read_key(endpoint.key_variable)
    return AsyncOpenAI(
        api_key=key.get_secret_value() if key else "none",
        base_url=endpoint.base_url,
        max_retries=retries,
        timeout=seconds,
    )
