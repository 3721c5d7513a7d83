"""Writes chosen runs as a folder that any web server can host and a browser can open from disk.

The folder holds the app and a server's responses to the app's requests. A page opened from
file:// cannot load modules or fetch files, so each response is a script.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sparring.contracts.errors import InvalidInput, SparringError
from sparring.contracts.json import JsonObject
from sparring.operations.held_out import is_held_out
from sparring.operations.operation import Caller, Role
from sparring.operations.registry import all_operations
from sparring.runs.finding import find_run
from sparring.surfaces.tools.answers import plain
from sparring.surfaces.web.app import STATIC

_PAGE = 100
_MAX_ROLLOUTS = 1_000  # of each log

Arguments = JsonObject


class Export:
    """One export. Without `has_held_out`, it shows runs on held-out cases as a viewer sees them,
    without their rollouts."""

    def __init__(self, folder: Path, caller: Caller, *, has_held_out: bool) -> None:
        self._folder = folder
        self._owner = self._caller = caller
        self._viewer = replace(caller, role=Role.VIEWER, name="export")
        self._has_held_out = has_held_out
        self._index: dict[str, str] = {}
        self.left_out: list[str] = []

    def write(self, names: list[str]) -> int:
        """Write the app and the data of these runs, and return the number of data files."""
        if self._folder.exists() and any(self._folder.iterdir()):
            raise InvalidInput(f"{self._folder} is not empty; name a new folder")
        runs = [find_run(self._caller.runs, name).id for name in names]
        (self._folder / "data").mkdir(parents=True, exist_ok=True)
        self._caller = self._owner if self._has_held_out else self._viewer
        lines = [line for line in self._lines() if line["run"] in runs]
        self._store("run.list", {"count": 50}, {"runs": lines, "next": ""})
        self._answer(
            "run.trends", {"runs": [each["run"] for each in lines if each["kind"] == "train"]}
        )
        for run in runs:
            self._write_run(run)
        session = {"name": "", "role": "owner", "can_leave": False, "runs": "exported runs"}
        shown = json.dumps({"session": session, "index": self._index})
        (self._folder / "export.js").write_text(f"window.SPARRING_EXPORT = {_safe(shown)};\n")
        for path in STATIC.iterdir():
            shutil.copy(path, self._folder / path.name)
        page = (STATIC / "index.html").read_text()
        script = '<script src="./export.js"></script>\n<script src="./app.js">'
        (self._folder / "index.html").write_text(page.replace('<script src="./app.js">', script))
        return len(self._index)

    def _write_run(self, run: str) -> None:
        query = {"run": run}
        is_hidden = not self._has_held_out and is_held_out(find_run(self._owner.runs, run))
        # The message of a failed run may quote a held-out case, whatever the run plays.
        self._caller = self._owner if self._has_held_out else self._viewer
        shown = self._answer("run.show", query)
        for name in ("run.curves", "run.details", "run.checkpoints"):
            self._answer(name, query)
        self._answer("run.curves", {**query, "points": 1000})
        self._answer("run.results", {**query, "rows": 0})
        if is_hidden:
            self.left_out.append(run)
            return
        self._caller = self._owner
        if shown and shown["kind"] == "prove":
            self._answer("rollout.pairs", query)
        logs: tuple[Arguments, ...] = ({},)
        if shown and shown["kind"] == "train":
            logs = ({}, {"log": "validation"})
        for log in logs:
            for rollout in self._write_pages({**query, **log}):
                one = {**query, **log, "rollout": rollout}
                for name in ("rollout.show", "rollout.group", "rollout.tokens"):
                    self._answer(name, one)

    def _write_pages(self, query: Arguments) -> Iterator[str]:
        """Write the pages of a rollout log, and yield the ids of the rollouts."""
        start: int | None = 0
        while start is not None and start < _MAX_ROLLOUTS:
            given = {**query, "count": _PAGE, **({"start": start} if start else {})}
            try:
                page = self._ask("rollout.list", given)
            except SparringError:
                return
            start = page["next"]
            is_last = start is None or start >= _MAX_ROLLOUTS
            self._store("rollout.list", given, {**page, "next": None if is_last else start})
            yield from (line["id"] for line in page["rollouts"])

    def _lines(self) -> Iterator[JsonObject]:
        after = ""
        while True:
            page = self._ask("run.list", {"count": 1000, "after": after})
            yield from page["runs"]
            after = page["next"]
            if not after:
                return

    def _ask(self, name: str, given: Arguments) -> JsonObject:
        answer: JsonObject = plain(all_operations()[name].ask(given, self._caller))
        return answer

    def _answer(self, name: str, given: Arguments) -> JsonObject | None:
        """Call an operation and store its result; an error is not stored."""
        try:
            answer = self._ask(name, given)
        except SparringError:
            return None
        self._store(name, given, answer)
        return answer

    def _store(self, name: str, given: Arguments, answer: JsonObject) -> None:
        # The app writes arguments as JSON with sorted keys and no spaces.
        arguments = json.dumps(
            dict(sorted(given.items())), separators=(",", ":"), ensure_ascii=False
        )
        key = f"{name} {arguments}"
        file = f"data/{hashlib.sha256(key.encode()).hexdigest()[:24]}.js"
        text = f"sparringAnswer({_safe(json.dumps(key))},{_safe(json.dumps(answer))});\n"
        (self._folder / file).write_text(text)
        self._index[key] = f"./{file}"


def _safe(text: str) -> str:
    """Escape `<`, U+2028 and U+2029, so that the JSON is safe inside a script."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
