"""Asks operations what the app in the browser asks a server about runs.

A folder or a file with these answers shows the runs without a server. The app finds an answer by
its key: the operation's name and its arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sparring.contracts.errors import SparringError
from sparring.contracts.json import JsonObject, plain
from sparring.operations.operation import Caller, Role, all_operations

_PAGE = 100
_MAX_ROLLOUTS = 1_000  # of each log


@dataclass(frozen=True, slots=True)
class AppAnswer:
    """The answer of one operation to one request of the app."""

    name: str
    given: JsonObject
    content: JsonObject

    @property
    def key(self) -> str:
        """The key by which the app finds the answer: arguments as JSON, sorted, without spaces."""
        given = dict(sorted(self.given.items()))
        return f"{self.name} {json.dumps(given, separators=(',', ':'), ensure_ascii=False)}"


class AppAnswers:
    """The answers about runs. What could quote a held-out case is asked as a viewer, who does not
    get it, unless `has_held_out`. Asking starts no queued run."""

    def __init__(self, owner: Caller, *, has_held_out: bool) -> None:
        self._owner = self._viewer = replace(owner, can_supervise=False)
        if not has_held_out:
            self._viewer = replace(self._owner, role=Role.VIEWER, name="export")

    def ask(self, name: str, given: JsonObject, *, as_viewer: bool = False) -> AppAnswer | None:
        """Call an operation. Return None if it raises a SparringError."""
        caller = self._viewer if as_viewer else self._owner
        try:
            answer = plain(all_operations()[name].ask(given, caller))
        except SparringError:
            return None
        return AppAnswer(name, given, answer)

    def about(self, run: str, *, quotes_results: bool = False) -> Iterator[AppAnswer]:
        """Yield state, curves, settings, checkpoints and results of a run.

        The message of a failed run may quote a held-out case, whatever the run plays, so all are
        asked as a viewer, but the results only unless `quotes_results`.
        """
        query: JsonObject = {"run": run}
        for name in ("run.show", "run.curves", "run.details", "run.checkpoints"):
            if answer := self.ask(name, query, as_viewer=True):
                yield answer
        results = {**query, "rows": 0}
        if answer := self.ask("run.results", results, as_viewer=not quotes_results):
            yield answer

    def count(self, query: JsonObject) -> int:
        """Return the number of rollouts of a log."""
        newest = self.ask("rollout.list", {**query, "count": 1})
        return int(newest.content["total"]) if newest else 0

    def pages(self, query: JsonObject) -> Iterator[AppAnswer]:
        """Yield pages with the newest rollouts of a log, numbered from 0."""
        total = self.count(query)
        shown = min(total, _MAX_ROLLOUTS)
        for start in range(0, shown, _PAGE):
            place = total - shown + start
            page = self.ask("rollout.list", {**query, "count": _PAGE, "start": place})
            if page is None:
                return
            given = {**query, "count": _PAGE, **({"start": start} if start else {})}
            following = start + _PAGE if start + _PAGE < shown else None
            content = {**page.content, "total": shown, "start": start, "next": following}
            yield AppAnswer("rollout.list", given, content)
