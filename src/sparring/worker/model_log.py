"""The log of one of several models that play: a line for each rollout, and how it ended."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sparring.contracts.errors import SparringError
from sparring.player import Played
from sparring.run_folder import RunFolder


def log_name(number: int, model: str) -> str:
    """A name that can be a file's."""
    return f"{number + 1}-{re.sub(r'[^A-Za-z0-9.-]+', '-', model).strip('-.')[:60]}"


class ModelLog:
    """Lines under `logs/NAME.log`; `message` says what went wrong, where something did."""

    def __init__(self, folder: RunFolder, name: str, model: str, minutes: float) -> None:
        self.model = model
        self.message = ""
        self.seconds = 0.0
        self._minutes = minutes
        self._count = 0
        path = folder.path / "logs" / f"{name}.log"
        path.parent.mkdir(exist_ok=True)
        self._file = path.open("a", encoding="utf-8")

    def write(self, played: Played) -> None:
        rollout = played.rollout
        self._count += 1
        reward = "unscored" if rollout.reward is None else f"reward {rollout.reward:g}"
        detail = f" {rollout.detail}" if rollout.detail else ""
        told = f"{rollout.id} {rollout.ending.value}, {reward}, {played.seconds:.1f} s{detail}"
        self._file.write(" ".join(told.split()) + "\n")
        self._file.flush()

    @contextmanager
    def telling(self, *, is_alone: bool) -> Iterator[None]:
        """What a model that is too slow has said by then counts. One that breaks ends no other,
        unless it is the one that all this is about."""
        started = time.monotonic()
        try:
            yield
        except TimeoutError:
            self.message = (
                f"stopped after {self._minutes:g} minutes with {self._count} rollouts done"
            )
        except (SparringError, OSError, RuntimeError) as error:
            if is_alone:
                raise
            self.message = f"{type(error).__name__}: {error}"
        finally:
            self.seconds = time.monotonic() - started
            self._file.write(f"{self.model}: {self.message or 'done'}, {self.seconds:.1f} s\n")
            self._file.close()
