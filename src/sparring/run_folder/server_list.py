"""The sampling servers of a run: given by address, started by the run, or joined from other hosts.

A host that joins with a server writes its address to a file in `servers/`, and rewrites the file as
a heartbeat. Clients need the random key in the same folder, which only its owner can read.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparring.contracts.json import Beat
from sparring.contracts.training import SamplingServers
from sparring.run_folder.files import read_json, read_json_or_empty, write_json
from sparring.run_folder.layout import RunFolder

_READ_SECONDS = 1.0
_LOST_SECONDS = 60.0


@dataclass(slots=True)
class JoinedServers:
    """The servers that have joined a run from other hosts."""

    folder: RunFolder
    _read_at: float = field(default=float("-inf"), init=False)
    _addresses: tuple[str, ...] = field(default=(), init=False)
    _beats: dict[str, tuple[Any, float]] = field(default_factory=dict, init=False)

    def beat(self, number: int, address: str, beats: int) -> None:
        """Write the address and heartbeat of a server; `beats` must grow with each call."""
        body = {"format": 1, "address": address, "beats": beats}
        write_json(self._file(number), body, durable=False)

    def remove(self, number: int) -> None:
        """Remove the file of a server, so that it gets no more requests."""
        self._file(number).unlink(missing_ok=True)

    def addresses(self) -> tuple[str, ...]:
        """Return the addresses of all live servers; the folder is read at most once a second."""
        now = time.monotonic()
        if now - self._read_at >= _READ_SECONDS:
            files = sorted(self.folder.servers.glob("server-*.json"))
            rows = [read_json_or_empty(file) for file in files]
            self._addresses = tuple(row["address"] for row in rows if self._lives(row, now))
            self._read_at = now
        return self._addresses

    def _lives(self, row: Beat, now: float) -> bool:
        """Whether a server's heartbeat has changed within the last minute, by this process's
        clock."""
        address, beats = row.get("address"), row.get("beats")
        if not isinstance(address, str):
            return False
        last, seen_at = self._beats.get(address, (None, now))
        if beats != last:
            self._beats[address] = (beats, now)
            return True
        return now - seen_at < _LOST_SECONDS

    def key(self) -> str:
        """Return the key that the servers require. The first call creates it."""
        place = self.folder.servers / "key"
        with suppress(FileExistsError):
            place.parent.mkdir(parents=True, exist_ok=True)
            aside = place.with_name(f".key-{secrets.token_hex(4)}")
            aside.touch(mode=0o600)
            aside.write_text(secrets.token_urlsafe(32))
            try:
                place.hardlink_to(aside)  # atomic: a reader never finds an empty key
            finally:
                aside.unlink()
        return place.read_text()

    def _file(self, number: int) -> Path:
        return self.folder.servers / f"server-{number}.json"


@dataclass(frozen=True, slots=True)
class ServerAddresses:
    """Reads the addresses of a run's sampling servers; `key` is the key they require, if any."""

    read: Callable[[], tuple[str, ...]]
    key: str | None = None


def server_addresses(folder: RunFolder, sampling: SamplingServers) -> ServerAddresses:
    """Return the addresses of a run's sampling servers; with joined servers, they may change."""
    servers = sampling.servers
    if servers == "joined":
        joined = JoinedServers(folder)
        return ServerAddresses(joined.addresses, joined.key())
    if isinstance(servers, int):
        servers = tuple(read_json(folder.sampling)["addresses"])
    fixed = servers
    return ServerAddresses(lambda: fixed)
