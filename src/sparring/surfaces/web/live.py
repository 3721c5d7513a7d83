"""Follows runs for many viewers, with one poll of a run's files for all of them.

A watcher for each followed run compares sizes and times of its files ten times a second. Viewers
read only the changes after their cursors; viewers with the same role and cursors share one answer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from sparring.operations.curves import Changes, ChangesQuery
from sparring.operations.operation import Role
from sparring.run_folder import RunFolder

POLL_SECONDS = 0.1
KEEP_ALIVE_SECONDS = 15.0
_MAX_SHARED = 8

Stamp = tuple[tuple[int, int], ...]
ReadChanges = Callable[[ChangesQuery], Awaitable[tuple[Changes, bytes]]]


@dataclass(slots=True)
class _Watched:
    """One followed run: the number of its changes, its viewers, and recent answers."""

    version: int = 0
    viewers: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    answers: dict[tuple[int, Role, int, int], asyncio.Task[tuple[Changes, bytes]]] = field(
        default_factory=dict
    )


class LiveRuns:
    """The runs that viewers follow now."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}

    async def follow(
        self, folder: RunFolder, role: Role, query: ChangesQuery, read: ReadChanges
    ) -> AsyncIterator[bytes]:
        """Yield the changes as JSON. After 15 seconds without a change, yield empty bytes, which
        the caller sends as a keep-alive comment. Return once the run has ended and all changes are
        sent."""
        watched = self._join(folder)
        try:
            while True:
                version, changed = watched.version, watched.changed
                changes, text = await self._answer(watched, version, role, query, read)
                query = query.model_copy(
                    update={"metrics": changes.metrics, "events": changes.events}
                )
                yield text
                if changes.has_ended:
                    return
                while watched.version == version:
                    try:
                        await asyncio.wait_for(changed.wait(), KEEP_ALIVE_SECONDS)
                    except TimeoutError:
                        yield b""
                        changed = watched.changed
        finally:
            self._leave(folder, watched)

    async def _answer(
        self, watched: _Watched, version: int, role: Role, query: ChangesQuery, read: ReadChanges
    ) -> tuple[Changes, bytes]:
        key = (version, role, query.metrics, query.events)
        task = watched.answers.get(key)
        if task is None:
            task = asyncio.ensure_future(_awaited(read(query)))
            watched.answers[key] = task
            while len(watched.answers) > _MAX_SHARED:
                watched.answers.pop(next(iter(watched.answers)))
        return await asyncio.shield(task)

    def _join(self, folder: RunFolder) -> _Watched:
        watched = self._watched.setdefault(folder.id, _Watched())
        watched.viewers += 1
        if watched.task is None:
            watched.task = asyncio.ensure_future(_watch(folder, watched))
        return watched

    def _leave(self, folder: RunFolder, watched: _Watched) -> None:
        watched.viewers -= 1
        if not watched.viewers and watched.task is not None:
            watched.task.cancel()
            self._watched.pop(folder.id, None)


async def _awaited(work: Awaitable[tuple[Changes, bytes]]) -> tuple[Changes, bytes]:
    return await work


async def _watch(folder: RunFolder, watched: _Watched) -> None:
    files = (
        str(folder.events),
        str(folder.metrics),
        str(folder.heartbeat),
        str(folder.rank_heartbeat(0)),
    )
    before = _stamp(files)
    while True:
        await asyncio.sleep(POLL_SECONDS)
        now = _stamp(files)
        if now != before:
            before = now
            watched.version += 1
            watched.changed.set()
            watched.changed = asyncio.Event()


def _stamp(files: tuple[str, ...]) -> Stamp:
    found = []
    for path in files:
        try:
            status = os.stat(path)  # noqa: PTH116 - ten times a second, for each followed run
            found.append((status.st_size, status.st_mtime_ns))
        except OSError:
            found.append((-1, 0))
    return tuple(found)
