"""Services: processes that an environment's tools need, such as a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparring.contracts.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Service:
    """A command to start, and the condition that shows it is ready.

    `{port}` in the command and in `ready_line` is replaced by a free port. A service is ready when
    it prints `ready_line`, when the path `ready_http` responds with success or, with neither set,
    when it accepts connections on the port. It must be ready within `seconds`.
    """

    name: str
    command: Sequence[str]
    ready_http: str | None = None
    ready_line: str | None = None
    seconds: float = 30.0

    def __post_init__(self) -> None:
        if isinstance(self.command, str) or not self.command:
            raise InvalidInput(
                f"service {self.name}: the command must be a list of strings, as in "
                "['python', 'server.py', '--port', '{port}']"
            )
        if self.ready_http is not None and self.ready_line is not None:
            raise InvalidInput(f"service {self.name}: give ready_http or ready_line, not both")
        if self.seconds <= 0:
            raise InvalidInput(f"service {self.name}: seconds must be above 0")

    def command_at(self, port: int) -> list[str]:
        """Return the command with `{port}` replaced."""
        return [str(part).replace("{port}", str(port)) for part in self.command]
