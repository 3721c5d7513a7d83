"""Running the player from anywhere: a script, a worker, a notebook whose loop already runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_in_own_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end in a loop of its own; in a thread, where this one's loop is taken."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    outcome: list[Result] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(work))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="sparring-player")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
