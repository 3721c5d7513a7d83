"""Services: processes that an environment's tools need, such as a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparring.contracts.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Service:
    """A command, and how to recognise that it is ready.

    `{port}` in the command, in `ready_http` and in `ready_line` is replaced by a free port. A
    service is ready once it accepts connections there, answers `ready_http` (a path) with success,
    or prints `ready_line`.
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
