"""The settings of sampling servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator

from sparring.contracts.specs import Frozen


class SamplingServers(Frozen):
    """vLLM servers that sample for a training run. The run starts them, other hosts start them, or
    they already run at known addresses."""

    servers: int | Literal["joined"] | tuple[str, ...] = Field(
        default=1,
        description="the number of servers to start, `joined` for servers that other hosts start "
        "(`sparring run join RUN --as server`), or addresses (http://HOST:PORT)",
    )
    command: tuple[str, ...] = Field(
        default=(),
        description="the command of vLLM's server; default: python -m "
        "vllm.entrypoints.openai.api_server",
    )
    arguments: tuple[str, ...] = Field(default=(), description="further arguments of the command")
    gpus: tuple[int, ...] = Field(
        default=(),
        description="GPUs, as positions in CUDA_VISIBLE_DEVICES if that is set; divided evenly "
        "among the servers that the run starts; a joined server uses all of them; default: the "
        "GPUs after those of the training processes",
    )
    wait_seconds: float = Field(
        default=600.0,
        gt=0,
        description="seconds without an answer from any server after which a rollout fails",
    )

    @field_validator("servers", mode="before")
    @classmethod
    def _is_a_number_or_addresses(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("give a number of servers, `joined`, or addresses")
        if isinstance(value, str) and value != "joined":
            if value.isdigit():
                return int(value)
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return tuple(value) if isinstance(value, list) else value

    @field_validator("servers")
    @classmethod
    def _can_be_reached(
        cls, value: int | Literal["joined"] | tuple[str, ...]
    ) -> int | Literal["joined"] | tuple[str, ...]:
        if value == "joined":
            return value
        if isinstance(value, int):
            if value < 1:
                raise ValueError("at least one server is needed")
            return value
        if not value:
            raise ValueError("at least one address is needed")
        for address in value:
            if not address.startswith(("http://", "https://")):
                raise ValueError(f"{address!r} is not an address; write http://HOST:PORT")
            if "@" in address:
                raise ValueError("an address must not carry a user or key")
        if len(set(value)) < len(value):
            raise ValueError("an address is given twice")
        return value

    @property
    def least_servers(self) -> int:
        """Minimum number of servers; 1 if servers join."""
        if isinstance(self.servers, int):
            return self.servers
        return 1 if self.servers == "joined" else len(self.servers)

    @property
    def number_started(self) -> int:
        """Number of servers that the run starts; 0 if they join or have given addresses."""
        return self.servers if isinstance(self.servers, int) else 0


def as_table(value: Any) -> Any:
    """Return the table for a short form: a number of servers, `joined`, or addresses. Copy a table,
    and return other values unchanged."""
    if isinstance(value, int | str | list | tuple) and not isinstance(value, bool):
        return {"servers": list(value) if isinstance(value, tuple) else value}
    return dict(value) if isinstance(value, Mapping) else value
