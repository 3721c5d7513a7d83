"""Orders of plays and their results, as files that ranks and player processes exchange.

An order is a file in `open/`. A player claims it by renaming it into its own folder, which succeeds
for one player only, also on NFS, and writes the results to `done/` when all its plays have ended.
If a player is lost, each order it has claimed is renamed back, so that another player can claim it.
Playing an order twice is harmless, because the results are the same.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.json import JsonObject
from sparring.run_folder.files import dump_line, read_json_or_empty, read_lines, write_json

_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Order:
    """One order: its name and the plays that it requests."""

    name: str
    body: JsonObject


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders in one folder."""

    folder: Path

    def post(self, name: str, body: JsonObject) -> None:
        """Offer an order to the players."""
        write_json(self._open / f"{name}{_SUFFIX}", body, durable=False)

    def claim(self, player: str) -> Order | None:
        """Claim the first open order, by name, for a player; None if there is none."""
        for path in _files(self._open):
            claimed = self._claims_of(player) / path.name
            claimed.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # another player was faster
                path.rename(claimed)
                return Order(path.name.removesuffix(_SUFFIX), read_json_or_empty(claimed))
        return None

    def finish(self, player: str, name: str, results: list[JsonObject]) -> None:
        """Publish the results of an order atomically and remove the player's claim."""
        place = self.folder / "done" / f"{name}.jsonl"
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = place.with_name(f".{name}.{player}.{os.getpid()}")
        aside.write_bytes(b"".join(map(dump_line, results)))
        aside.replace(place)
        (self._claims_of(player) / f"{name}{_SUFFIX}").unlink(missing_ok=True)

    def take(self, name: str) -> list[JsonObject] | None:
        """Remove and return the results of an order; None if it is not finished."""
        place = self.folder / "done" / f"{name}.jsonl"
        if not place.is_file():
            return None
        results = list(read_lines(place))
        place.unlink(missing_ok=True)
        return results

    def release(self, player: str) -> int:
        """Move the orders that a player has claimed back to `open/`; return their number."""
        released = 0
        for path in _files(self._claims_of(player)):
            with suppress(FileNotFoundError):
                self._open.mkdir(parents=True, exist_ok=True)
                path.rename(self._open / path.name)
                released += 1
        return released

    def beat(self, player: str, count: int) -> None:
        """Write a player's heartbeat; `count` must differ from the last one."""
        write_json(self.heartbeat(player), {"beats": count}, durable=False)

    def heartbeat(self, player: str) -> Path:
        """Return the file of a player's heartbeat."""
        return self.folder / "players" / f"{player}{_SUFFIX}"

    def beats(self) -> JsonObject:
        """Return the last heartbeat of each player with claimed orders, by player."""
        holders = (path for path in (self.folder / "claimed").glob("*") if any(_files(path)))
        return {path.name: read_json_or_empty(self.heartbeat(path.name)) for path in holders}

    def clear(self, rank: str) -> None:
        """Remove all orders and results of a rank, whose names contain `rank` and a hyphen."""
        for place in ("open", "done", "claimed/*"):
            for path in self.folder.glob(f"{place}/*{rank}-*"):
                path.unlink(missing_ok=True)

    @property
    def _open(self) -> Path:
        return self.folder / "open"

    def _claims_of(self, player: str) -> Path:
        return self.folder / "claimed" / player


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"[!.]*{_SUFFIX}"))
