"""Many viewers of one run share one look at its files."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sparring.operations.curves import Changes, ChangesQuery
from sparring.operations.operation import Role
from sparring.run_folder.files import append_line
from sparring.runs.lifecycle import RunState
from sparring.surfaces.web.live import LiveRuns
from tests.surfaces.web.viewed import make_training


def test_viewers_share_answers_and_the_watcher_ends_with_the_last(tmp_path: Path) -> None:
    folder = make_training(tmp_path / "runs")
    reads: list[ChangesQuery] = []
    has_read = asyncio.Event()

    async def read(query: ChangesQuery) -> tuple[Changes, bytes]:
        reads.append(query)
        has_read.set()
        state = RunState.RUNNING if len(reads) < 2 else RunState.COMPLETED
        changes = Changes(
            run=folder.id,
            state=state,
            has_ended=state.has_ended,
            metrics=query.metrics + 10,
            events=query.events,
        )
        return changes, str(changes.metrics).encode()

    async def watch(live: LiveRuns) -> list[bytes]:
        query = ChangesQuery(run=folder.id)
        return [text async for text in live.follow(folder, Role.OWNER, query, read)]

    async def scenario() -> tuple[list[list[bytes]], LiveRuns]:
        live = LiveRuns()
        viewers = [asyncio.ensure_future(watch(live)) for _ in range(20)]
        await has_read.wait()
        append_line(folder.metrics, {"attempt": 1, "step": 9})
        return await asyncio.gather(*viewers), live

    seen, live = asyncio.run(scenario())
    assert seen == [[b"10", b"20"]] * 20
    assert len(reads) == 2
    assert not live._watched
