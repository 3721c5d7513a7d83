"""The text log of one model in a check: one line per rollout, and a last line with the outcome."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sparring.contracts.errors import SparringError
from sparring.player import Played
from sparring.run_folder import RunFolder


def log_name(number: int, model: str) -> str:
    """Return the name of the logs of the model with this number, counted from 0."""
    return f"{number + 1}-{re.sub(r'[^A-Za-z0-9.-]+', '-', model).strip('-.')[:60]}"


class ModelLog:
    """Writes `logs/NAME.log`. `message` describes a timeout or error; it is empty otherwise."""

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
        """Append a line for one rollout."""
        rollout = played.rollout
        self._count += 1
        reward = "unscored" if rollout.reward is None else f"reward {rollout.reward:g}"
        detail = f" {rollout.detail}" if rollout.detail else ""
        line = f"{rollout.id} {rollout.ending.value}, {reward}, {played.seconds:.1f} s{detail}"
        self._file.write(" ".join(line.split()) + "\n")
        self._file.flush()

    @contextmanager
    def recording(self, *, is_required: bool) -> Iterator[None]:
        """Time the play within the context, then close the log. A timeout is suppressed and
        described in `message`, and so is an error, unless `is_required`."""
        started = time.monotonic()
        try:
            yield
        except TimeoutError:
            self.message = (
                f"stopped after {self._minutes:g} minutes with {self._count} rollouts done"
            )
        except (SparringError, OSError, RuntimeError) as error:
            self.message = f"{type(error).__name__}: {error}"
            if is_required:
                raise
        except BaseException as error:
            self.message = f"stopped by {type(error).__name__}"
            raise
        finally:
            self.seconds = time.monotonic() - started
            self._file.write(f"{self.model}: {self.message or 'done'}, {self.seconds:.1f} s\n")
            self._file.close()
